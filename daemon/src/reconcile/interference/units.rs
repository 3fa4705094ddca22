//! Which of systemd's units are enabled: by the links that `systemctl enable` makes, and none that `systemctl mask` keeps from
//! starting.

use std::fs;
use std::path::Path;

/// Where `systemctl` makes links.
const LINKS: &str = "etc/systemd/system";

/// Whether a unit starts with a target. A link into the host's own file system leads nowhere from here, and counts.
pub(super) fn is_enabled(root: &Path, unit: &str, target: &str) -> bool {
    let links = root.join(LINKS);
    let wanted = links.join(format!("{target}.wants")).join(unit).symlink_metadata().is_ok();
    let masked = fs::read_link(links.join(unit)).is_ok_and(|to| to == Path::new("/dev/null"));
    wanted && !masked
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_unit_is_enabled_that_its_target_wants_and_nobody_masked() {
        let root = tempfile::tempdir().unwrap();
        let links = root.path().join(LINKS);
        let enabled = || is_enabled(root.path(), "ocid.service", "multi-user.target");
        assert!(!enabled());
        fs::create_dir_all(links.join("multi-user.target.wants")).unwrap();
        symlink("/usr/lib/systemd/system/ocid.service", links.join("multi-user.target.wants/ocid.service")).unwrap();
        assert!(enabled());
        // `systemctl edit --full` makes a file of that name.
        fs::write(links.join("ocid.service"), "").unwrap();
        assert!(enabled());
        fs::remove_file(links.join("ocid.service")).unwrap();
        symlink("/dev/null", links.join("ocid.service")).unwrap();
        assert!(!enabled());
    }
}
