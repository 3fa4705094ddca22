//! Capabilities: a process gives up all but the named ones, for itself and its descendants.

use std::io;

use nix::errno::Errno;
use nix::sys::prctl;

use crate::error::{Error, Result};

/// In the kernel's order (linux/capability.h): the position is the number.
const NAMES: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE \
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT \
    SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP \
    MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE";

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// The capabilities that stay, and no way to get others (`allowPrivilegeEscalation: false`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Privileges {
    /// A bit per capability.
    keep: u64,
}

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// CapabilityHalf of the bits, the low half first.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

impl Privileges {
    /// Only the named capabilities.
    pub(super) fn of(names: &[String]) -> Result<Self> {
        let mut keep = 0;
        for name in names {
            let number = NAMES.split(' ').position(|known| known == name);
            let number = number.ok_or_else(|| Error::Invalid(format!("{name} is no capability")))?;
            keep |= 1 << number;
        }
        Ok(Self { keep })
    }

    /// Gives up all others. Only system calls.
    pub(super) fn drop_others(self) -> io::Result<()> {
        for number in (0..u64::BITS).filter(|number| self.keep >> number & 1 == 0) {
            match control(libc::PR_CAPBSET_DROP, u64::from(number), 0) {
                // Beyond the last that this kernel knows.
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        control(libc::PR_CAP_AMBIENT, u64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.unsigned_abs()), 0)?;
        set(self.keep)?;
        prctl::set_no_new_privs()?;
        Ok(())
    }
}

#[expect(unsafe_code, reason = "nix wraps none of these operations")]
fn control(operation: libc::c_int, first: u64, second: u64) -> Result<(), Errno> {
    // SAFETY: the operations used here take numbers only.
    Errno::result(unsafe { libc::prctl(operation, first, second, 0, 0) }).map(drop)
}

#[expect(unsafe_code, reason = "no crate in use wraps capset")]
fn set(keep: u64) -> Result<(), Errno> {
    let header = Header { version: VERSION, pid: 0 };
    let half = |bits: u64| {
        let bits = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        // Nothing is inherited, as container runtimes do since CVE-2022-24769.
        CapabilityHalf { effective: bits, permitted: bits, inheritable: 0 }
    };
    let halves = [half(keep), half(keep >> 32)];
    // SAFETY: version 3 reads a header and two halves, which outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_at_their_numbers() {
        for (name, number) in [("CHOWN", 0), ("NET_ADMIN", 12), ("NET_RAW", 13), ("SYS_ADMIN", 21), ("BPF", 39)] {
            let privileges = Privileges::of(&[name.to_owned()]).unwrap();
            assert_eq!(privileges.keep, 1 << number, "{name}");
        }
        assert!(Privileges::of(&["CAP_NET_ADMIN".to_owned()]).is_err());
    }
}
