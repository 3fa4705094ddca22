//! Restores kernel settings that no other program changed or needs.

use std::path::Path;

use netlink::Sysctls;

use super::{Error, LINK, Note, OtherNetworks, Removal, changed, link};

/// Restores the noted settings. One that another program changed since stays. Forwarding stays for another pod network, which
/// found it set and had no reason to set it, and so does `accept_ra`, which the host then needs for its default route. A link
/// that another program uses stays as it is, and keeps IPv6.
pub(in crate::uninstall) fn restore(
    data_dir: &Path,
    sysctl_root: &Path,
    others: &OtherNetworks,
    removal: &mut Removal,
) {
    let changed = match changed(data_dir) {
        Ok(changed) => changed,
        Err(error) => return removal.failures.push(error),
    };
    let sysctls = Sysctls::new(sysctl_root);
    // Links last: a setting of a link that is down may be gone.
    let (links, plain): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(name, _)| name.starts_with(LINK));
    for (name, Note { before, set, .. }) in plain {
        restore_one(&name, (&before, &set), (&sysctls, others), removal);
    }
    for (name, Note { before, set, .. }) in links {
        link::restore(&name, (&before, &set), others, removal);
    }
}

fn restore_one(
    name: &str,
    (before, set): (&str, &str),
    (sysctls, others): (&Sysctls, &OtherNetworks),
    removal: &mut Removal,
) {
    let failed = |source| Error::Network { what: format!("setting {name}"), source };
    let key: Vec<&str> = name.split('/').collect();
    if key.first() != Some(&"net") || key.iter().any(|part| part.is_empty() || *part == "..") {
        return removal.left.push(format!("setting {name}: it is not a network setting"));
    }
    let now = match sysctls.read(&key) {
        // Gone with its link, for example.
        Err(error) if error.is_not_found() => return,
        Err(source) => return removal.failures.push(failed(source)),
        Ok(now) => now,
    };
    match now.trim() {
        now if now == before => return,
        now if now != set => {
            return removal.left.push(format!("setting {name}: another program changed it to {now} since"));
        }
        _ => {}
    }
    let used = match &key[..] {
        [.., "ip_forward" | "forwarding"] => Ok(others.network()),
        // While forwarding is on, the kernel honors router advertisements only with 2.
        ["net", "ipv6", "conf", _, "accept_ra"] if set == "2" => Ok(others.network()),
        // Every IPv6 address of the link would be removed.
        ["net", "ipv6", "conf", link, "disable_ipv6"] => link::user(link, others),
        _ => Ok(None),
    };
    match used {
        Err(source) => removal.failures.push(failed(source)),
        Ok(Some(used)) => removal.left.push(format!("setting {name}: {used}")),
        Ok(None) => removal
            .step(format!("restore {name} to {before}"), || sysctls.write(&key, before).map(drop).map_err(failed)),
    }
}
