//! The operations of NodeTasks on units of systemd: what the Pod of a task runs, once, as root without capabilities. It reaches
//! systemd through the system bus, and leaves a report in its container's termination message. The resident agent never does this.

mod files;
mod grow;
mod logs;
mod restart;
mod shell;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use api::operation::OperationReport;
use api::{Reason as _, TaskReason};
use resident::logging::chain;
use systemd::Systemd;

use crate::args::{Operation, OperationArgs};

#[derive(Debug)]
struct Failure {
    reason: TaskReason,
    message: String,
}

/// Carries out an operation, and writes its report to the container's termination message.
///
/// # Errors
/// When the operation failed, or the report cannot be written.
pub(crate) fn run(arguments: &OperationArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let report = runtime.block_on(report(&arguments.operation, &arguments.bus));
    println!("{}: {}", report.reason.as_str(), report.message);
    write(&report, &arguments.message)?;
    anyhow::ensure!(report.reason == TaskReason::Succeeded, "{}", report.message);
    Ok(())
}

async fn report(operation: &Operation, bus: &Path) -> OperationReport {
    let systemd = match Systemd::connect(bus).await {
        Ok(systemd) => systemd,
        Err(error) => return OperationReport::new(TaskReason::OperationFailed, &chain(&error)),
    };
    let result = match operation {
        Operation::RestartUnit { unit } => restart::restart(&systemd, unit.as_str()).await,
        Operation::GrowRootDisk => grow::grow(&systemd).await,
        Operation::ApplyFiles(arguments) => files::apply(&systemd, arguments).await,
        Operation::Logs(arguments) => logs::capture(&systemd, arguments).await,
    };
    result.unwrap_or_else(|failure| OperationReport::new(failure.reason, &failure.message))
}

fn write(report: &OperationReport, message: &Path) -> anyhow::Result<()> {
    fs::write(message, report.to_text()).with_context(|| format!("write {}", message.display()))
}

impl From<systemd::Error> for Failure {
    fn from(error: systemd::Error) -> Self {
        Self { reason: TaskReason::OperationFailed, message: chain(&error) }
    }
}
