//! The command: arguments to settings, one reconciliation, a report on stdout, logs as JSON on stderr.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::{Args, Report, Settings, Status, dry_run, reconcile};

/// EX_USAGE of sysexits.h: called wrongly.
const USAGE: u8 = 64;

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
    let Args { options, signals, usable, dry_run: dry } = args;
    let settings = match Settings::new(options) {
        Ok(settings) => settings,
        Err(error) => {
            let _ = writeln!(io::stderr(), "oke-cni-installer: {error}");
            return ExitCode::from(USAGE);
        }
    };
    log_to_stderr();
    let act = if dry { dry_run } else { reconcile };
    match tell(&act(&settings, &signals.into(), usable)) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "oke-cni-installer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Fails only where a subscriber is set already, as in tests.
    let _ = tracing_subscriber::fmt().json().with_writer(io::stderr).with_env_filter(filter).try_init();
}

fn tell(report: &Report) -> anyhow::Result<ExitCode> {
    for step in &report.steps {
        tracing::info!(%step, applied = report.applied, "step");
    }
    tracing::info!(
        install = report.decision.install,
        decided_by = %report.decision.decided_by,
        reason = report.decision.reason,
        configuration = %report.conflist,
        status = %report.status(),
        "reconciled"
    );
    writeln!(io::stdout(), "{report}").context("writing the report to stdout")?;
    Ok(if report.status() == Status::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
