//! The instance and its VNICs as they were known last, on disk: an agent that starts while the metadata service is silent,
//! or its list short, knows of them, too. It is a copy: one that is lost or damaged is made anew by the next answers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipam::{BootId, read_state, write_atomically};
use serde::{Deserialize, Serialize};
use vcn::{Instance, MacAddr, VNICS_COPY_FILE, Vnic};

const VERSION: u32 = 1;

/// How far the copy's word of when it was asked may be from the truth, while the answers stay the same: the disk is spared.
const REFRESH: Duration = Duration::from_secs(3600);

/// What was known last. All but the secondary VNICs came later, and lacks in what an agent of before wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Last {
    /// The secondary VNICs.
    pub vnics: Vec<Vnic>,
    /// The primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<Vnic>,
    /// The instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
    /// The boot in which that was so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<BootId>,
    /// When the metadata service said so, by the wall clock; up to [`REFRESH`] earlier than it last did.
    #[serde(default)]
    pub asked_unix_millis: u64,
}

/// The copy.
#[derive(Clone, Debug)]
pub struct VnicsSeen {
    path: PathBuf,
    /// What it says, as it was last read or written.
    known: Option<Last>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    #[serde(flatten)]
    last: Last,
}

impl Last {
    /// Whether it is about this machine, for sure: an image may be made of another one's disk. It is when it was written in
    /// this boot, or when the primary VNIC, which an instance has for as long as it exists, is one of this host's links.
    #[must_use]
    pub fn is_of(&self, boot: &BootId, macs: &[MacAddr]) -> bool {
        let Some(primary) = &self.primary else { return false };
        self.boot_id.as_ref() == Some(boot) || macs.contains(&primary.mac)
    }

    /// How old it is. A clock that was set back makes it new.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(UNIX_EPOCH + Duration::from_millis(self.asked_unix_millis)).unwrap_or_default()
    }

    /// Whether the other differs in nothing but, by little, when it was asked.
    fn stands_for(&self, other: &Self) -> bool {
        let Self { vnics, primary, instance, boot_id, asked_unix_millis: asked } = other;
        (&self.vnics, &self.primary, &self.instance, &self.boot_id) == (vnics, primary, instance, boot_id)
            // A clock that was set back would make it look new for as long as it was set back by.
            && u128::from(asked.abs_diff(self.asked_unix_millis)) < REFRESH.as_millis()
    }
}

impl VnicsSeen {
    /// The one in a directory that outlives a boot.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(VNICS_COPY_FILE), known: None }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was known; nothing where there is no copy.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or another version's.
    pub fn read(&mut self) -> io::Result<Last> {
        let bytes = match read_state(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Last::default()),
            other => other?,
        };
        let Document { version, last } = serde_json::from_slice(&bytes)?;
        if version > VERSION {
            let text = format!("it has format version {version}, this build reads up to {VERSION}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.known = Some(last.clone());
        Ok(last)
    }

    /// Replaces it where it says something else. What could not be written is with the next call.
    ///
    /// # Errors
    /// When the disk is full, broken or read-only; the copy is then as it was.
    pub fn note(&mut self, last: Last) -> io::Result<()> {
        if self.known.as_ref().is_some_and(|known| known.stands_for(&last)) {
            return Ok(());
        }
        let document = Document { version: VERSION, last };
        write_atomically(&self.path, &serde_json::to_vec(&document)?)?;
        self.known = Some(document.last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use vcn::SubnetAddressing;

    use super::*;
    use crate::fixture::{instance, mac, vm_vnics};
    use crate::sources::facts::World;

    const HOUR: u64 = 3_600_000;

    fn last() -> Last {
        Last {
            vnics: vm_vnics()[1..].to_vec(),
            primary: vm_vnics().into_iter().next(),
            instance: Some(instance()),
            boot_id: Some(BootId::from_text("a")),
            asked_unix_millis: 5 * HOUR,
        }
    }

    #[test]
    fn what_was_noted_is_read_again_and_written_only_when_it_changes_or_has_aged() {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = VnicsSeen::new(folder.path());
        assert_eq!(seen.read().unwrap(), Last::default());
        seen.note(last()).unwrap();
        assert_eq!(VnicsSeen::new(folder.path()).read().unwrap(), last());
        fs::remove_file(seen.path()).unwrap();
        for asked in [4 * HOUR + 1, 5 * HOUR, 6 * HOUR - 1] {
            seen.note(Last { asked_unix_millis: asked, ..last() }).unwrap();
            assert!(!seen.path().exists(), "{asked}");
        }
        for changed in [
            Last { asked_unix_millis: 6 * HOUR, ..last() },
            // The clock was set back.
            Last { asked_unix_millis: HOUR, ..last() },
            Last { vnics: Vec::new(), ..last() },
            Last { primary: None, ..last() },
            Last { instance: None, ..last() },
            Last { boot_id: Some(BootId::from_text("b")), ..last() },
        ] {
            seen.note(changed.clone()).unwrap();
            assert_eq!(VnicsSeen::new(folder.path()).read().unwrap(), changed);
            fs::remove_file(seen.path()).unwrap();
        }
    }

    #[test]
    fn what_could_not_be_written_is_written_when_it_can_be_although_nothing_changed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("lib");
        fs::create_dir(&place).unwrap();
        let mut seen = VnicsSeen::new(&place);
        seen.note(last()).unwrap();
        fs::remove_dir_all(&place).unwrap();
        let new = || Last { vnics: Vec::new(), ..last() };
        for _ in 0..2 {
            seen.note(new()).unwrap_err();
        }
        fs::create_dir(&place).unwrap();
        seen.note(new()).unwrap();
        assert_eq!(VnicsSeen::new(&place).read().unwrap(), new());
    }

    #[test]
    fn a_damaged_copy_or_a_later_versions_is_an_error_and_is_replaced_by_the_next_list() {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = VnicsSeen::new(folder.path());
        for text in ["{\"version\": 1,", "{\"version\": 2, \"vnics\": []}"] {
            fs::write(seen.path(), text).unwrap();
            seen.read().unwrap_err();
        }
        seen.note(last()).unwrap();
        assert_eq!(VnicsSeen::new(folder.path()).read().unwrap(), last());
    }

    #[test]
    fn what_an_agent_of_before_kept_is_read_and_is_of_no_machine_for_sure() {
        let folder = tempfile::tempdir().unwrap();
        let vnics = vm_vnics();
        let mut seen = VnicsSeen::new(folder.path());
        fs::write(seen.path(), serde_json::json!({ "version": 1, "vnics": vnics }).to_string()).unwrap();
        let read = seen.read().unwrap();
        assert_eq!(read, Last { vnics, ..Last::default() });
        assert!(!read.is_of(&BootId::from_text("a"), &[mac(0x0a), mac(0x0b)]));
    }

    #[test]
    fn addresses_beside_a_vnics_first_are_kept_and_are_a_field_that_a_copy_of_before_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = VnicsSeen::new(folder.path());
        let mut more = last();
        seen.note(more.clone()).unwrap();
        let before = fs::read_to_string(seen.path()).unwrap();
        more.vnics[0].addressing.ipv4.as_mut().unwrap().others.push("10.0.33.8".parse().unwrap());
        seen.note(more.clone()).unwrap();
        assert_eq!(VnicsSeen::new(folder.path()).read().unwrap(), more);
        let now = fs::read_to_string(seen.path()).unwrap();
        assert_eq!(now.replace(r#","others":["10.0.33.8"]"#, ""), before, "the rest is where it was");
    }

    #[test]
    fn addresses_that_are_listed_in_another_order_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (mut seen, mut world) = (VnicsSeen::new(folder.path()), World::default());
        let mut note = |addresses: [&str; 2]| {
            let [address, other] = addresses.map(|it| it.parse().unwrap());
            let (subnet, router) = ("2603:c020::/64".parse().unwrap(), "fe80::1".parse().unwrap());
            let mut vnics = vm_vnics();
            vnics[1].addressing.ipv6 = Some(SubnetAddressing { subnet, router, address, others: vec![other] });
            world.absorb_vnics(Ok(vnics.into()), Duration::ZERO, Instant::now(), |_| false);
            seen.note(Last { vnics: world.vnics()[1..].to_vec(), ..last() }).unwrap();
            fs::remove_file(seen.path()).is_ok()
        };
        assert!(note(["2603:c020::7", "2603:c020::8"]));
        assert!(!note(["2603:c020::8", "2603:c020::7"]));
        assert!(note(["2603:c020::8", "2603:c020::9"]));
    }

    #[test]
    fn it_is_this_machines_by_its_boot_or_by_its_primary_vnics_link() {
        let (same, other) = (BootId::from_text("a"), BootId::from_text("b"));
        assert!(last().is_of(&same, &[]));
        assert!(last().is_of(&other, &[mac(0x0b), mac(0x0a)]));
        assert!(!last().is_of(&other, &[mac(0x0b)]), "by a secondary one's it is not");
    }
}
