//! The code of `oke-cni-installer uninstall`, called in the container of `manifests/uninstall`.

use installer::{KernelRoots, Removal, Uninstall};
use sandbox::Container;

use crate::node::Node;

/// What that pod does on a node.
pub(crate) fn uninstall(node: &Node) -> Removal {
    let container = node.placed(Container::uninstaller().unwrap());
    let folder = |name: &str| container.environment().iter().find(|(known, _)| known == name).unwrap().1.clone();
    let roots = KernelRoots { sysctl: folder("SYSCTL_ROOT").into(), host: folder("HOST_ROOT").into() };
    let how = Uninstall { roots, force: false, returning: None, dry_run: false };
    let settings = node.settings(&[]);
    node.call_in(&container, || installer::uninstall(&settings.installer, how))
}
