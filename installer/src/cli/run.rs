//! The command: arguments to settings, one reconcile or uninstallation, a report on stdout, logs as JSON on stderr.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use resident::{api_server, logging};
use tracing::Level;

use crate::args::{Args, Command, UninstallArgs};
use crate::reconcile::{dry_run, reconcile};
use crate::report::{Report, Status};
use crate::settings::{Settings, SettingsError};
use crate::uninstall::on_delete;
use crate::uninstall::{KernelRoots, RemovalStatus, Uninstall, uninstall};

/// EX_USAGE of sysexits.h: the arguments or settings are not valid.
const USAGE: u8 = 64;

/// EX_TEMPFAIL of sysexits.h: refused for now.
const REFUSED: u8 = 75;

/// Runs the command with the given arguments, the program's name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are errors to clap.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    // JSON for log collectors. At a terminal the report alone is shown, which contains the same.
    if !io::stderr().is_terminal() {
        logging::start_on_stderr(Level::INFO);
    }
    let result = match args.command {
        Some(Command::Uninstall(args)) => run_uninstall(*args),
        Some(Command::Idle) => idle(),
        None => run_install(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "oke-cni-installer: {error:#}");
            if error.is::<SettingsError>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn run_install(args: Args) -> anyhow::Result<ExitCode> {
    let Args { options, signals, state, cni_usable: usable, dry_run: dry, .. } = args;
    let settings = Settings::new(options, state)?;
    let act = if dry { dry_run } else { reconcile };
    print(&act(&settings, &signals, usable))
}

fn run_uninstall(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let UninstallArgs { directories, state, sysctl_root, host_root, force, dry_run } = args;
    let settings = Settings::to_uninstall(directories, state)?;
    let returning = if force { None } else { returning()? };
    let roots = KernelRoots { sysctl: sysctl_root, host: host_root };
    let removal = uninstall(&settings, Uninstall { roots, force, returning, dry_run });
    removal.log("installer", "run it again when that is repaired");
    writeln!(io::stdout(), "{removal}").context("writing the report to stdout")?;
    Ok(match removal.status() {
        RemovalStatus::All | RemovalStatus::Planned => ExitCode::SUCCESS,
        RemovalStatus::Part => ExitCode::FAILURE,
        RemovalStatus::Refused => ExitCode::from(REFUSED),
    })
}

/// Why an agent may start on this node again. Outside a pod there is no cluster.
fn returning() -> anyhow::Result<Option<String>> {
    if !api_server::in_cluster() {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("starting the client of the API server")?.block_on(on_delete::returning()))
}

/// The first process of a container ignores a signal that it does not handle.
fn idle() -> anyhow::Result<ExitCode> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block().context("blocking signals")?;
    writeln!(io::stdout(), "idle until SIGTERM").context("writing to stdout")?;
    signals.wait().context("waiting for a signal")?;
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) -> anyhow::Result<ExitCode> {
    for step in &report.steps {
        tracing::info!(event = "installer.step", %step, applied = report.applied);
    }
    tracing::info!(
        event = "installer.reconciled",
        install = report.decision.install,
        decided_by = %report.decision.decided_by,
        reason = report.decision.reason,
        configuration = %report.conflist,
        status = %report.status(),
    );
    writeln!(io::stdout(), "{report}").context("writing the report to stdout")?;
    Ok(if report.status() == Status::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
