//! Capabilities: a process gives up all but the named ones, for itself and its descendants.

use std::io;

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::error::{Error, Result};

/// The capabilities that stay, and no way to get others (`allowPrivilegeEscalation: false`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Privileges {
    keep: CapabilitySet,
}

impl Privileges {
    /// Only the named capabilities.
    pub(super) fn of(names: &[String]) -> Result<Self> {
        let number = |name: &String| {
            CapabilitySet::from_name(name).ok_or_else(|| Error::Invalid(format!("{name} is not a capability")))
        };
        Ok(Self { keep: names.iter().map(number).collect::<Result<_>>()? })
    }

    /// Gives up all others. Only system calls.
    pub(super) fn drop_others(self) -> io::Result<()> {
        let all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
        for other in all.filter(|one| !self.keep.contains(*one)) {
            match thread::remove_capability_from_bounding_set(other) {
                // Beyond the last that this kernel knows.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        thread::clear_ambient_capability_set()?;
        // Nothing is inherited, as container runtimes do since CVE-2022-24769.
        let sets = CapabilitySets { effective: self.keep, permitted: self.keep, inheritable: CapabilitySet::empty() };
        thread::set_capabilities(None, sets)?;
        thread::set_no_new_privs(true)?;
        Ok(())
    }
}
