//! `ocid` of oci-utils: every minute it configures the VNICs that the metadata service lists, and on bare metal makes links
//! for them.

use std::path::Path;

use super::ini::{is_true, merged, value};
use super::units::is_enabled;
use crate::report::condition::{Condition, Reason};

pub(super) fn look(root: &Path) -> Option<Condition> {
    if !is_enabled(root, "ocid.service", "multi-user.target") {
        return None;
    }
    let texts = merged(&[], &[root.join("etc/oci-utils.conf.d")]);
    let vnics = texts.iter().rev().find_map(|text| value(text, "vnic", "enabled")).is_none_or(is_true);
    vnics.then(|| {
        let message = "it is enabled and configures the same VNICs every minute: addresses with their subnet's prefix, tables \
                       ort*, rules, and links of its own on bare metal. Say enabled = false under [vnic] in \
                       /etc/oci-utils.conf.d/, or run systemctl disable --now ocid; then oci-network-config unconfigure";
        Condition::degraded(Reason::VnicConfiguredTwice, message).about("ocid")
    })
}
