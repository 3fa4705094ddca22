//! Contents of files that need no more than `hostFiles`: they configure programs that run as root, and must name no program, no other
//! file and no user. So what a line may say is a closed list.

use api::node_policy::{FileGrant, HostUnit};

use crate::files::folders::Place;
use crate::files::sysctl_lines;
use crate::refusal::Refusal;

/// Programs read a longer line in pieces, and each piece would be a line: PAM after 1024 bytes, chronyd after 2048.
const LINE_MAX: usize = 1000;

const LINE: Refusal =
    Refusal { reason: "a line has more than 1000 bytes", next_step: "Write shorter lines, also in comments." };
const CHRONY: Refusal = Refusal {
    reason: "chrony files of policies have only directives about time sources and the clock",
    next_step: "Use server, pool, peer, makestep and similar; leave files, users and access to the node image.",
};
const LIMIT: Refusal = Refusal {
    reason: "a line of limits.d is not DOMAIN TYPE ITEM VALUE with a resource as its item",
    next_step: "Write a line such as: * soft nofile 65536.",
};
const NETWORK_MANAGER: Refusal = Refusal {
    reason: "NetworkManager files of policies name devices to leave alone, defaults of connections, dns and logging only",
    next_step: "Use the keys of docs/node-policies.md; leave plugins, paths and access to the node image.",
};

const CHRONY_DIRECTIVES: [&str; 28] = [
    "acquisitionport",
    "cmdport",
    "combinelimit",
    "corrtimeratio",
    "hwtimestamp",
    "leapsecmode",
    "leapsectz",
    "lock_all",
    "logchange",
    "makestep",
    "maxchange",
    "maxclockerror",
    "maxdistance",
    "maxdrift",
    "maxjitter",
    "maxsamples",
    "maxslewrate",
    "maxupdateskew",
    "minsamples",
    "minsources",
    "noclientlog",
    "peer",
    "pool",
    "port",
    "reselectdist",
    "rtcsync",
    "server",
    "stratumweight",
];

/// Without `chroot`, which Debian's PAM has: a pod could fill the folder in which root's next session starts a shell.
const LIMITS: [&str; 18] = [
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "maxlogins",
    "maxsyslogins",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nonewprivs",
    "nproc",
    "priority",
    "rss",
    "rtprio",
    "sigpending",
];

/// Keys by the beginning of their section's name: sections of devices and connections have a suffix that the user chooses.
const NETWORK_MANAGER_KEYS: [(&str, &[&str]); 5] = [
    ("connection", &["connection.*", "ipv4.*", "ipv6.*", "match-device"]),
    ("device", &["carrier-wait-timeout", "ignore-carrier", "keep-configuration", "managed", "match-device"]),
    ("keyfile", &["unmanaged-devices"]),
    ("logging", &["domains", "level"]),
    (
        "main",
        &["autoconnect-retries-default", "dns", "hostname-mode", "ignore-carrier", "no-auto-default", "rc-manager"],
    ),
];

/// Checks the content of a file.
///
/// # Errors
/// If a line could do more than configure its program.
pub(super) fn check(place: Place, content: &str) -> Result<(), Refusal> {
    if place.grant != FileGrant::HostFiles {
        return Ok(());
    }
    if content.lines().any(|line| line.len() > LINE_MAX) {
        return Err(LINE);
    }
    match place.unit {
        Some(HostUnit::SystemdSysctl) => sysctl_lines::check(content),
        Some(HostUnit::Chronyd) => all(content, &['#', '%', ';', '!'], CHRONY, is_chrony),
        Some(HostUnit::NetworkManager) => check_network_manager(content),
        _ => all(content, &['#'], LIMIT, is_limit),
    }
}

/// Whether each line but comments is permitted.
fn all(content: &str, comments: &[char], refusal: Refusal, is_permitted: fn(&str) -> bool) -> Result<(), Refusal> {
    let mut lines = content.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(comments));
    if lines.all(is_permitted) { Ok(()) } else { Err(refusal) }
}

/// chronyd starts as root, and other directives name files that it writes or removes, or users.
fn is_chrony(line: &str) -> bool {
    let directive = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    CHRONY_DIRECTIVES.contains(&directive.as_str())
}

fn is_limit(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default();
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "soft" | "hard" | "-", item, _] => LIMITS.contains(&item),
        _ => false,
    }
}

fn check_network_manager(content: &str) -> Result<(), Refusal> {
    let mut section = "";
    for line in content.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => section = name,
            None if is_setting(section, line) => {}
            None => return Err(NETWORK_MANAGER),
        }
    }
    Ok(())
}

/// Whether a section may have this setting. A node without its own links is lost, so not all devices are left alone.
fn is_setting(section: &str, line: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else { return false };
    // KEY+=VALUE and KEY-=VALUE change a list.
    let (key, value) = (key.trim_end().trim_end_matches(['+', '-']), value.trim());
    let is_known = |known: &str| match known.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == known,
    };
    let is_section = |name: &str| {
        section.strip_prefix(name).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(['-', '.']))
    };
    let keys = NETWORK_MANAGER_KEYS.iter().find(|(name, _)| is_section(name));
    let names_all = |device: &str| {
        let device = device.trim();
        device.rsplit(':').next() == Some("*") || device.starts_with("except:")
    };
    let is_of_devices = ["unmanaged-devices", "match-device"].contains(&key);
    keys.is_some_and(|(_, keys)| keys.iter().any(|known| is_known(known)))
        && !(is_of_devices && value.split([',', ';']).any(names_all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::folders::place;

    fn checked(folder: &str, content: &str) -> Result<(), Refusal> {
        check(place(&format!("{folder}/90-x.conf")).unwrap(), content)
    }

    #[test]
    fn chrony_files_name_sources_and_no_files() {
        const CHRONY_FOLDER: &str = "/etc/chrony.d";
        let good = "# own\nserver 169.254.169.254 iburst\n\nmakestep 1 3\nrtcsync\ncmdport 0\nMaxSamples 20\n";
        assert_eq!(checked(CHRONY_FOLDER, good), Ok(()));
        for line in
            ["pidfile /etc/shadow", " PidFile /x", "user root", "driftfile /x", "include /x", "server a\nlogdir /x"]
        {
            assert_eq!(checked(CHRONY_FOLDER, &format!("{line}\n")), Err(CHRONY), "{line}");
        }
        let hidden = format!("#{}pidfile /etc/shadow\n", "x".repeat(2046));
        assert_eq!(checked(CHRONY_FOLDER, &hidden), Err(LINE), "chronyd reads the rest as a line");
    }

    #[test]
    fn limits_are_of_resources() {
        const LIMITS_FOLDER: &str = "/etc/security/limits.d";
        let good = "# own\n* soft nofile 65536\n*\t-\tmemlock unlimited # all\n@users hard nproc 100\nroot - core 0\n";
        assert_eq!(checked(LIMITS_FOLDER, good), Ok(()));
        for line in
            ["root - chroot /x", "* soft nofile", "* soft nofile 1 2", "root both core 0", "root -", "include /x"]
        {
            assert_eq!(checked(LIMITS_FOLDER, &format!("{line}\n")), Err(LIMIT), "{line}");
        }
    }

    #[test]
    fn network_manager_files_leave_paths_plugins_and_access_alone() {
        const FOLDER: &str = "/etc/NetworkManager/conf.d";
        for content in [
            "[keyfile]\nunmanaged-devices=interface-name:cali*;interface-name:tunl0\n",
            "# own\n[keyfile]\nunmanaged-devices+=mac:02:00:17:00:00:01\n",
            "[main]\ndns=none\nno-auto-default=*\nrc-manager = unmanaged\n",
            "[connection-ipv6]\nipv6.ip6-privacy=0\nmatch-device=interface-name:ens*\n",
            "[device.storage]\nmatch-device=interface-name:ens5\nmanaged=0\n[logging]\nlevel=INFO\n",
        ] {
            assert_eq!(checked(FOLDER, content), Ok(()), "{content}");
        }
        for content in [
            "unmanaged-devices=a\n",
            "[keyfile]\npath=/var/lib/x\n",
            "[keyfile]\nunmanaged-devices=*\n",
            "[keyfile]\nunmanaged-devices=interface-name:a; interface-name:*\n",
            "[keyfile]\nunmanaged-devices=*,except:interface-name:a\n",
            "[device]\nmatch-device=*\nmanaged=0\n",
            "[main]\nauth-polkit=false\n",
            "[main]\nplugins=x\n",
            "[global-dns-domain-*]\nservers=192.0.2.1\n",
            "[.config]\nenable=x\n",
            "[mainly]\ndns=none\n",
            "[main]\ndns\n",
        ] {
            assert_eq!(checked(FOLDER, content), Err(NETWORK_MANAGER), "{content}");
        }
    }
}
