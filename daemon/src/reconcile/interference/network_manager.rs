//! NetworkManager: a link that it manages gets its addresses, routes and state by its profiles, and loses ours when one of
//! them comes or goes.

use std::path::Path;

use super::ini::{is_true, value};
use super::units::is_enabled;
use super::{Found, Subject, index_of};
use crate::report::condition::{Condition, Reason};

pub(super) fn look(root: &Path, subject: Subject<'_>) -> Found {
    let state = root.join("run/NetworkManager");
    // The directory alone may be the kubelet's, who makes what it mounts.
    if !std::fs::read_dir(state.join("devices")).is_ok_and(|mut devices| devices.next().is_some()) {
        return Found::default();
    }
    let mut conditions = Vec::new();
    for vnic in &subject.network.vnics {
        let Some(index) = index_of(vnic, subject.links) else { continue };
        let device = std::fs::read_to_string(state.join("devices").join(index.to_string())).unwrap_or_default();
        if value(&device, "device", "managed").is_some_and(is_true) {
            let name = vnic.placement.link();
            let message = format!(
                "it manages {name}, the link of {}, and removes addresses and routes there that are not in its profile. Allow \
                 the agent to write drop-ins (HOST_DROP_INS=allow), or add the link to unmanaged-devices in \
                 /etc/NetworkManager/conf.d/, and run nmcli general reload",
                vnic.vnic.id
            );
            let about = format!("NetworkManager, {name}");
            conditions.push(Condition::degraded(Reason::NetworkManagerInterferes, message).about(about));
        }
    }
    if is_enabled(root, "nm-cloud-setup.timer", "timers.target") {
        let message = "it writes routing rules for every VNIC, on a timer. Disable it: systemctl disable --now \
                       nm-cloud-setup.timer nm-cloud-setup.service";
        conditions.push(Condition::degraded(Reason::NetworkManagerInterferes, message).about("nm-cloud-setup"));
    }
    Found { running: true, conditions }
}
