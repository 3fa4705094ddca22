//! PID 1 of the test guest: mounts what programs expect, loads the job's kernel modules, runs the job's program, hands
//! its exit status to the host and switches the guest off. Started by `tests/uml/run`, which wrote the job.
//!
//! The guest's root is the host's root, read-only, so the program, its libraries and its fixtures are where they are on
//! the host. The one place on the host that the guest can write is the job's own folder.

mod job;
mod machine;
mod modules;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::wait::wait;
use nix::unistd::Pid;

use job::Job;

/// What a shell says of a program that could not be started, and `tests/uml/run` of a guest that broke.
const BROKEN: i32 = 125;

fn main() -> Result<()> {
    ensure!(std::process::id() == 1, "this is the first program of a user-mode-linux guest, started by tests/uml/run");
    machine::mount_all().context("mount the guest's file systems")?;
    let code = run().unwrap_or_else(|error| {
        eprintln!("uml-init: {error:#}");
        BROKEN
    });
    fs::write(Path::new(machine::JOB_DIR).join("status"), format!("{code}\n")).context("write the exit status")?;
    machine::power_off()
}

fn run() -> Result<i32> {
    let job = Job::read(&Path::new(machine::JOB_DIR).join("job"))?;
    for module in &job.modules {
        modules::load(&job.module_dir, module).with_context(|| format!("load kernel module {module}"))?;
    }
    let output = machine::raw_terminal("/dev/tty0")?;
    let errors = machine::raw_terminal("/dev/tty1")?;
    let (program, arguments) = job.command.split_first().context("the job names no program")?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(job.environment).current_dir(&job.directory);
    // A session of its own: a program that kills its process group must not kill PID 1.
    command.stdin(fs::File::open("/dev/null")?).stdout(output).stderr(errors).process_group(0);
    let child = command.spawn().with_context(|| format!("start {program}"))?;
    let status = reap_until(Pid::from_raw(i32::try_from(child.id())?))?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Waits for the program. PID 1 also inherits every orphan of the guest.
fn reap_until(program: Pid) -> Result<ExitStatus> {
    use nix::sys::wait::WaitStatus::{Exited, Signaled};
    loop {
        match wait() {
            Ok(Exited(pid, code)) if pid == program => return Ok(ExitStatus::from_raw(code << 8)),
            Ok(Signaled(pid, signal, _)) if pid == program => return Ok(ExitStatus::from_raw(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("wait for the program"),
        }
    }
}
