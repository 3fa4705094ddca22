//! The guest as a machine: its file systems, its consoles, its off switch.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{OutputFlags, SetArg, tcdrain, tcgetattr, tcsetattr};
use nix::sys::wait::wait;
use nix::unistd::Pid;

/// Where the guest sees the job's folder on the host, the one place there that it may write.
pub(crate) const JOB_DIR: &str = "/run/job";

/// The kernel hands us what it does not know of its command line as variables; this one is the job's folder.
const JOB_VARIABLE: &str = "UML_JOB_DIR";

/// Mounts what programs expect. The root is read-only: every mount point but those in `/run` must be there already.
pub(crate) fn mount_all() -> Result<()> {
    let job =
        std::env::var(JOB_VARIABLE).with_context(|| format!("{JOB_VARIABLE} is not on the kernel's command line"))?;
    attach("proc", "/proc", "proc", "")?;
    attach("sysfs", "/sys", "sysfs", "")?;
    attach("devtmpfs", "/dev", "devtmpfs", "")?;
    attach("tmpfs", "/run", "tmpfs", "mode=755")?;
    for directory in [JOB_DIR, "/run/netns", "/run/tmp"] {
        fs::create_dir_all(directory).with_context(|| format!("make {directory}"))?;
    }
    attach("job", JOB_DIR, "hostfs", &job)?;
    // UML's kernel starts this program for every new link otherwise; the host's is not for the guest.
    fs::write("/proc/sys/kernel/hotplug", "\n").context("switch hotplug off")
}

fn attach(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    let mounted = mount(Some(source), Path::new(target), Some(kind), MsFlags::empty(), Some(options));
    match mounted {
        // The kernel has mounted /dev itself.
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(errno) => Err(errno).with_context(|| format!("mount {kind} on {target}")),
    }
}

/// Opens a console that writes what it is given: the host wants line feeds alone.
pub(crate) fn raw_terminal(path: &str) -> Result<File> {
    let terminal = OpenOptions::new().read(true).write(true).open(path).with_context(|| format!("open {path}"))?;
    let mut settings = tcgetattr(&terminal).with_context(|| format!("read the settings of {path}"))?;
    settings.output_flags.remove(OutputFlags::OPOST);
    tcsetattr(&terminal, SetArg::TCSANOW, &settings).with_context(|| format!("change the settings of {path}"))?;
    Ok(terminal)
}

/// Switches the guest off, when all it wrote is on the host.
pub(crate) fn power_off() -> Result<()> {
    // A guest's process that outlives its kernel goes on running on the host, so none may be left.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while wait().is_ok() {}
    for console in ["/dev/tty0", "/dev/tty1"] {
        tcdrain(OpenOptions::new().write(true).open(console)?)?;
    }
    let never: Infallible = reboot(RebootMode::RB_POWER_OFF)?;
    match never {}
}
