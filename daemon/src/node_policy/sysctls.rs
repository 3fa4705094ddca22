//! Kernel settings as the agent's container can read and write them. Below SYSCTL_ROOT are the folders that the manifest mounts.
//! The container's own /proc/sys, which is read-only, shows what the kernel has.

use std::path::Path;

use netlink::Sysctls;
use nix::errno::Errno;
use resident::logging::chain;
use tunables::value::chosen;
use tunables::{Item, keys};

/// Where transparent huge pages are set, below /sys/kernel/mm; also their key in the record of earlier values.
const HUGE_PAGES: &str = "transparent_hugepage/enabled";
const HUGE_PAGES_FOLDER: &str = "sys/kernel/mm";

/// All settings that policies may name, but for those of links.
#[derive(Debug)]
pub(super) struct KernelSettings {
    granted: Sysctls,
    kernel: Sysctls,
    granted_huge_pages: Sysctls,
    kernel_huge_pages: Sysctls,
}

/// What the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    Value(String),
    /// The kernel has the setting, and the container has no mount with it.
    NotGranted,
    /// The kernel does not have the setting.
    Unsupported,
    /// It cannot be read.
    Unreadable(String),
}

/// Why a value was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WriteError {
    /// The mount is read-only.
    NotGranted,
    Refused(String),
}

impl KernelSettings {
    /// As seen from here.
    pub(super) fn new(sysctl_root: &Path, host_root: &Path) -> Self {
        Self {
            granted: Sysctls::new(sysctl_root),
            kernel: Sysctls::default(),
            granted_huge_pages: Sysctls::new(&host_root.join(HUGE_PAGES_FOLDER)),
            kernel_huge_pages: Sysctls::new(&Path::new("/").join(HUGE_PAGES_FOLDER)),
        }
    }

    /// The value of a setting.
    pub(super) fn read(&self, item: &Item) -> Observed {
        let (granted, kernel) = match item {
            Item::HugePages => (&self.granted_huge_pages, &self.kernel_huge_pages),
            _ => (&self.granted, &self.kernel),
        };
        let key = record_key(item);
        match granted.read(&key) {
            Ok(text) if *item == Item::HugePages => match chosen(&text) {
                Some(value) => Observed::Value(value.to_owned()),
                None => Observed::Unreadable(format!("the kernel's text has no choice: {text}")),
            },
            Ok(text) => Observed::Value(text.trim().to_owned()),
            Err(error) if error.is_not_found() => match kernel.read(&key) {
                Err(error) if error.is_not_found() => Observed::Unsupported,
                _ => Observed::NotGranted,
            },
            Err(error) => Observed::Unreadable(chain(&error)),
        }
    }

    pub(super) fn write(&self, item: &Item, value: &str) -> Result<(), WriteError> {
        let granted = match item {
            Item::HugePages => &self.granted_huge_pages,
            _ => &self.granted,
        };
        granted.write(&record_key(item), value).map(drop).map_err(|error| match error.errno() {
            Some(Errno::EROFS | Errno::EACCES | Errno::EPERM) => WriteError::NotGranted,
            _ => WriteError::Refused(chain(&error)),
        })
    }
}

/// The key of an item in the record of earlier values: its path below its root.
pub(super) fn record_key(item: &Item) -> String {
    match item {
        Item::Sysctl(key) => keys::path(key),
        Item::HugePages => HUGE_PAGES.to_owned(),
        Item::Link { .. } | Item::File(_) | Item::Kubelet | Item::Unit(_) => item.to_string(),
    }
}

/// The item of a key in the record; `None` for options of links, which [`super::links`] records and restores.
pub(super) fn item_of(record_key: &str) -> Option<Item> {
    match record_key {
        HUGE_PAGES => Some(Item::HugePages),
        key if key.starts_with("link/") => None,
        key => Some(Item::Sysctl(key.replace('/', "."))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_is_found_by_its_key_in_the_record() {
        for item in [Item::Sysctl("vm.max_map_count".to_owned()), Item::HugePages] {
            assert_eq!(item_of(&record_key(&item)), Some(item));
        }
        assert_eq!(item_of("link/ens5/mtu"), None);
    }

    #[test]
    fn setting_without_mount_is_not_granted_and_an_unknown_one_is_unsupported() {
        let root = tempfile::tempdir().unwrap();
        let settings = KernelSettings::new(root.path(), root.path());
        let read = |key: &str| settings.read(&Item::Sysctl(key.to_owned()));
        assert_eq!(read("vm.max_map_count"), Observed::NotGranted);
        assert_eq!(read("vm.no_such_key"), Observed::Unsupported);
        std::fs::create_dir(root.path().join("vm")).unwrap();
        std::fs::write(root.path().join("vm/max_map_count"), "65530\n").unwrap();
        assert_eq!(read("vm.max_map_count"), Observed::Value("65530".to_owned()));
    }
}
