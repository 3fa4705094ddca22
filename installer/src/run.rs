//! The command: arguments to settings, one reconciliation or removal, a report on stdout, logs as JSON on stderr.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use resident::{api_server, logging};
use tracing::Level;

use crate::args::Keeping;
use crate::departure::{ask, returning};
use crate::{
    Answers, Args, Command, Options, Removed, Report, Settings, SettingsError, Status, Uninstall, UninstallArgs,
    dry_run, reconcile, uninstall,
};

/// EX_USAGE of sysexits.h: called wrongly.
const USAGE: u8 = 64;

/// EX_TEMPFAIL of sysexits.h: refused for now.
const REFUSED: u8 = 75;

/// The agent's DaemonSet.
const AGENT: &str = "oke-node-agent";

/// Runs the command with the given arguments, the program's name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Help and version come this way too, and are no errors.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    log_to_stderr();
    let told = match args.command {
        Some(Command::Uninstall(args)) => removed(*args),
        Some(Command::Idle) => idle(),
        None => installed(args),
    };
    match told {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "oke-cni-installer: {error:#}");
            if error.is::<SettingsError>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn installed(args: Args) -> anyhow::Result<ExitCode> {
    let Args { options, signals, keeping, usable, dry_run: dry, .. } = args;
    let settings = settings(options, &keeping)?;
    let act = if dry { dry_run } else { reconcile };
    tell(&act(&settings, &signals.into(), usable, &Answers::waited_for()))
}

fn removed(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let UninstallArgs { directories, keeping, sysctl_root, host_root, force, dry_run } = args;
    let settings = settings(Options::at(directories), &keeping)?;
    let returning = if force { None } else { returning_agent()? };
    let removal = uninstall(&settings, Uninstall { sysctl_root, host_root, force, returning, dry_run });
    removal.log("installer", "run it again when that is mended");
    writeln!(io::stdout(), "{removal}").context("writing the report to stdout")?;
    Ok(match removal.status() {
        Removed::All | Removed::Planned => ExitCode::SUCCESS,
        Removed::Part => ExitCode::FAILURE,
        Removed::Refused => ExitCode::from(REFUSED),
    })
}

/// Why an agent may come to this node again, as far as the cluster knows. Outside a pod there is no cluster to ask.
fn returning_agent() -> anyhow::Result<Option<String>> {
    if !api_server::in_cluster() {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (answer, why) = runtime.context("starting the client of the API server")?.block_on(ask(AGENT));
    Ok(returning(AGENT, answer, why.as_deref()))
}

/// The first process of a container is not ended by a signal that it does not wait for.
fn idle() -> anyhow::Result<ExitCode> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block().context("blocking signals")?;
    writeln!(io::stdout(), "idle until told to end").context("saying so")?;
    signals.wait().context("waiting for a signal")?;
    Ok(ExitCode::SUCCESS)
}

fn settings(options: Options, keeping: &Keeping) -> Result<Settings, SettingsError> {
    Settings::new(options)?.keeping(&keeping.state_dir, &keeping.data_dir)
}

/// For collectors, as the agent logs. At a terminal the report alone is shown, which says the same.
fn log_to_stderr() {
    if !io::stderr().is_terminal() {
        logging::start_on_stderr(Level::INFO);
    }
}

fn tell(report: &Report) -> anyhow::Result<ExitCode> {
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
