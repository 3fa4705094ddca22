//! What the numbers were measured on, and by which rules the kernel shared its processors out.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::time::{ClockId, clock_getres};

use super::args::Args;
use super::contender::Contender;

/// Priority of `chrt --rr 20`: above all ordinary programs, below the kernel's own threads that matter.
const PRIORITY: libc::c_int = 20;

/// Lets this thread, and all that it starts from now on, run before ordinary programs, so that those do not decide the result, if
/// that is permitted. Says how they are scheduled.
pub(crate) fn schedule_first() -> String {
    scheduled(set(libc::SCHED_RR, PRIORITY), format!("SCHED_RR, priority {PRIORITY}"))
}

/// Takes that back: a hundred real-time processes would keep the kernel's own work from being done.
pub(crate) fn schedule_ordinarily() -> String {
    scheduled(set(libc::SCHED_OTHER, 0), "SCHED_OTHER, as a container runtime starts plugins".to_owned())
}

fn scheduled(outcome: Result<(), Errno>, now: String) -> String {
    match outcome {
        Ok(()) => now,
        Err(errno) => format!("SCHED_OTHER, because a change was refused ({errno}): expect noise"),
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
