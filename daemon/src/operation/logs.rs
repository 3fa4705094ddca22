//! Captures the logs of units for support. The host's journalctl reads its journal as a transient unit: it knows the journal's format, and
//! the Pod mounts no folder of the journal. Each log is redacted before it is written into the capture's folder.

use std::io::{self, PipeReader};
use std::path::Path;
use std::time::Duration;

use api::TaskReason;
use api::operation::OperationReport;
use systemd::Systemd;
use vcn::{excerpt, printable};

use super::Failure;
use super::shell::{last_line, run_read, unit};
use crate::args::LogsArgs;
use crate::captures::logs::{UnitLog, check_space, read, write};

/// More lines than the largest log has: each begins with its time.
const LINES_MAX: &str = "--lines=120000";
/// For the log of one unit.
const LIMIT: Duration = Duration::from_secs(20);
/// The most characters of an error.
const ERROR_MAX: usize = 200;

/// Writes the log of each unit. One that cannot be read does not hide the others.
pub(super) async fn capture(systemd: &Systemd, arguments: &LogsArgs) -> Result<OperationReport, Failure> {
    let failed = |message: String| Failure { reason: TaskReason::CaptureFailed, message };
    let (mut errors, count) = (Vec::new(), arguments.units.len());
    for name in &arguments.units {
        check_space(&arguments.folder).map_err(|error| failed(error.to_string()))?;
        let (text, described) = match journal(systemd, name, arguments.hours).await {
            Ok(log) => log,
            Err(failure) => {
                let error = excerpt(&printable(&failure.message), ERROR_MAX).into_owned();
                errors.push(format!("{name}: {error}"));
                (Vec::new(), UnitLog { error, ..UnitLog::default() })
            }
        };
        write_log(&arguments.folder, name, &text, &described).map_err(failed)?;
    }
    if errors.len() == count {
        return Err(failed(errors.join("; ")));
    }
    errors.insert(0, format!("logs: {} of {count} units", count - errors.len()));
    Ok(OperationReport::new(TaskReason::Succeeded, &errors.join("; ")))
}

async fn journal(systemd: &Systemd, name: &str, hours: u8) -> Result<(Vec<u8>, UnitLog), Failure> {
    // The host's name in a Pod is the Pod's: captures at the same time have different units.
    let host = nix::unistd::gethostname().unwrap_or_default();
    let command_name = format!("logs-{}", host.to_string_lossy());
    let (of, since) = (format!("--unit={name}"), format!("--since=-{hours}h"));
    let command = ["/usr/bin/journalctl", &of, &since, LINES_MAX, "--output=short-iso", "--quiet", "--no-pager"];
    let reading = run_read(systemd, &command_name, &command, LIMIT, |output: PipeReader| read(output)).await;
    let (exit, log) = match reading {
        Ok(read) => read,
        Err(failure) => {
            // Without the stop, the command continues and its unit's name stays in use.
            let _ = systemd.stop(&unit(&command_name)).await;
            return Err(failure);
        }
    };
    let failed = |message: String| Failure { reason: TaskReason::CaptureFailed, message };
    let (text, described) = log
        .unwrap_or_else(|| Err(io::Error::other("the reader ended")))
        .map_err(|error| failed(format!("read the journal: {error}")))?;
    if !exit.is_success() {
        let text = String::from_utf8_lossy(&text);
        return Err(failed(format!("journalctl ended with {} {}: {}", exit.result, exit.status, last_line(&text))));
    }
    Ok((text, described))
}

fn write_log(folder: &Path, name: &str, text: &[u8], described: &UnitLog) -> Result<(), String> {
    write(folder, name, text, described).map_err(|error| format!("write the log of {name}: {error}"))
}
