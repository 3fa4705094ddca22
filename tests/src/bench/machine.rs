//! What the numbers were measured on, and by which rules the kernel shared its processors out.

use std::fmt::{self, Write as _};
use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::time::{ClockId, clock_getres};

use super::args::Args;
use super::contender::Contender;

/// Priority of `chrt --rr 20`: above all ordinary programs, below the kernel's own threads that matter.
const PRIORITY: libc::c_int = 20;

/// How processes are scheduled from now on.
#[derive(Debug)]
pub(crate) enum Scheduling {
    /// Before all ordinary programs, so that those do not decide the result.
    RealTime,
    /// Real time was asked for and refused.
    Refused(Errno),
    /// As all programs.
    Ordinary,
}

impl Scheduling {
    /// Lets this thread, and all that it starts from now on, run before ordinary programs, if that is permitted.
    pub(crate) fn real_time() -> Self {
        match set(libc::SCHED_RR, PRIORITY) {
            Ok(()) => Self::RealTime,
            Err(errno) => Self::Refused(errno),
        }
    }

    /// Takes `real_time` back: a hundred real-time processes would keep the kernel's own work from being done.
    pub(crate) fn ordinary() -> Self {
        match set(libc::SCHED_OTHER, 0) {
            Ok(()) => Self::Ordinary,
            Err(errno) => Self::Refused(errno),
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RealTime => write!(f, "SCHED_RR, priority {PRIORITY}"),
            Self::Refused(errno) => write!(f, "SCHED_OTHER, because a change was refused ({errno}): expect noise"),
            Self::Ordinary => f.write_str("SCHED_OTHER, as a container runtime starts plugins"),
        }
    }
}

/// Machine and programs, as a list.
pub(crate) fn describe(args: &Args, contenders: &[Contender]) -> anyhow::Result<String> {
    let mut text = String::new();
    let system = nix::sys::utsname::uname()?;
    // The coarse clock advances with timer interrupts, so its resolution is one of their periods.
    let tick = Duration::from(clock_getres(ClockId::CLOCK_REALTIME_COARSE)?);
    let processors = std::thread::available_parallelism()?;
    writeln!(
        text,
        "- {} {} {}, {processors} processors, HZ {:.0}, load average {}",
        system.sysname().display(),
        system.release().display(),
        system.machine().display(),
        1.0 / tick.as_secs_f64(),
        load()?
    )?;
    for contender in contenders.iter().filter(|contender| contender.is_plugin()) {
        writeln!(text, "- {}: {}", contender.name, contender.about()?)?;
    }
    let package = Command::new("dpkg-query").args(["--show", "containernetworking-plugins"]).output();
    if let Some(output) = package.ok().filter(|output| output.status.success()) {
        writeln!(text, "- {}", String::from_utf8_lossy(&output.stdout).trim().replace('\t', " "))?;
    }
    writeln!(
        text,
        "- {} rounds after {} to warm up, {} bursts of {}; {} other pods hold addresses",
        args.rounds, args.warm_up, args.bursts, args.pods, args.held
    )?;
    Ok(text)
}

/// The load averages of 1, 5 and 15 minutes.
pub(crate) fn load() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

#[expect(unsafe_code, reason = "no crate wraps sched_setscheduler")]
fn set(policy: libc::c_int, priority: libc::c_int) -> Result<(), Errno> {
    // SAFETY: an all-zero sched_param is valid: it is plain numbers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the pointer leads to a local that outlives the call.
    Errno::result(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) }).map(drop)
}
