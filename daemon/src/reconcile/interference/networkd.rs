//! systemd-networkd: by default it removes every policy rule and route that it did not make, whenever it starts or a link of
//! its own changes (`ManageForeignRoutingPolicyRules`, `ManageForeignRoutes`).

use std::path::Path;

use super::ini::{is_true, merged, value};
use super::{Found, Subject, index_of};
use crate::report::condition::{Condition, Reason};

/// The settings that make it remove what is not its own; each is `yes` unless it is set.
const KEYS: [&str; 2] = ["ManageForeignRoutingPolicyRules", "ManageForeignRoutes"];

pub(super) fn look(root: &Path, subject: Subject<'_>) -> Found {
    let state = root.join("run/systemd/netif");
    if !state.join("state").exists() {
        return Found::default();
    }
    let roots = ["usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd"].map(|path| root.join(path));
    let main = roots.clone().map(|path| path.join("networkd.conf"));
    let texts = merged(&main, &roots.map(|path| path.join("networkd.conf.d")));
    let effective = |key: &str| texts.iter().rev().find_map(|text| value(text, "Network", key)).is_none_or(is_true);
    let removes: Vec<&str> = KEYS.into_iter().filter(|key| effective(key)).collect();
    let mut conditions = Vec::new();
    if !removes.is_empty() {
        let message = format!(
            "it removes routing rules and routes that are not its own when it starts or a link changes, those of pods \
             included ({} is in force); they are put back, but connections break. Allow the agent to write drop-ins \
             (HOST_DROP_INS=allow), or set them to no in /etc/systemd/networkd.conf.d/, and restart systemd-networkd",
            removes.join(" and ")
        );
        conditions.push(Condition::degraded(Reason::NetworkManagerInterferes, message).about("systemd-networkd"));
    }
    for vnic in &subject.network.vnics {
        let Some(index) = index_of(vnic, subject.links) else { continue };
        let link = std::fs::read_to_string(state.join("links").join(index.to_string())).unwrap_or_default();
        let managed = link.lines().any(|line| matches!(line, "ADMIN_STATE=configured" | "ADMIN_STATE=configuring"));
        if managed {
            let name = vnic.placement.link();
            let message = format!(
                "it configures {name}, the link of {}, with what it finds there (DHCP, most often): addresses and a default \
                 route of its own. Allow the agent to write drop-ins (HOST_DROP_INS=allow), or say Unmanaged=yes for it in \
                 /etc/systemd/network/, and run networkctl reload",
                vnic.vnic.id
            );
            let about = format!("systemd-networkd, {name}");
            conditions.push(Condition::degraded(Reason::NetworkManagerInterferes, message).about(about));
        }
    }
    Found { running: true, conditions }
}
