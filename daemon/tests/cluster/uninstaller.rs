//! The code of `oke-cni-installer uninstall`, called in the container of `manifests/uninstall`.

use installer::{Removal, Uninstall};
use sandbox::Container;

use crate::node::Node;

/// What that pod does on a node.
pub(crate) fn uninstall(node: &Node) -> Removal {
    let container = node.placed(Container::uninstaller().unwrap());
    let (_, root) = container.environment().iter().find(|(known, _)| known == "SYSCTL_ROOT").unwrap();
    let how = Uninstall { sysctl_root: root.into(), force: false, returning: None, dry_run: false };
    let settings = node.settings(&[]);
    node.call_in(&container, || installer::uninstall(&settings.installer, how))
}
