//! Commands on the host, as transient units: the few that operations need, with their output, bounded.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use api::TaskReason;
use systemd::{Command, Exit, Systemd};

use super::Failure;

/// The most bytes of a command's output that are kept.
const OUTPUT_MAX: u64 = 64 << 10;

/// For reading the journal.
const JOURNAL_LIMIT: Duration = Duration::from_secs(30);

/// What a command did.
pub(super) struct Output {
    pub(super) exit: Exit,
    pub(super) text: String,
}

/// Runs a command on the host. Its output beyond the bound is read and dropped, so that it never waits.
pub(super) async fn run(systemd: &Systemd, name: &str, arguments: &[&str], limit: Duration) -> Result<Output, Failure> {
    let read = |mut output: PipeReader| {
        let mut kept = Vec::new();
        let _ = output.by_ref().take(OUTPUT_MAX).read_to_end(&mut kept);
        let _ = io::copy(&mut output, &mut io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    };
    let (exit, text) = run_read(systemd, name, arguments, limit, read).await?;
    Ok(Output { exit, text: text.unwrap_or_default() })
}

/// Runs a command on the host while a thread reads its output to the end. The thread may panic: then nothing was read.
pub(super) async fn run_read<T: Send + 'static>(
    systemd: &Systemd,
    name: &str,
    arguments: &[&str],
    limit: Duration,
    read: impl FnOnce(PipeReader) -> T + Send + 'static,
) -> Result<(Exit, Option<T>), Failure> {
    let failed = |error: io::Error| Failure {
        reason: TaskReason::OperationFailed,
        message: format!("make a pipe for {name}: {error}"),
    };
    let (reader, writer) = io::pipe().map_err(failed)?;
    let output = thread::spawn(move || read(reader));
    let exit = start(systemd, name, arguments, limit, Some(OwnedFd::from(writer))).await?;
    Ok((exit, output.join().ok()))
}

/// The same for a command that must not be disturbed: its output goes to the journal, so it does not need this Pod.
pub(super) async fn run_alone(
    systemd: &Systemd,
    name: &str,
    arguments: &[&str],
    limit: Duration,
) -> Result<Output, Failure> {
    let exit = start(systemd, name, arguments, limit, None).await?;
    let unit = format!("--unit={}", unit(name));
    let journal = ["/usr/bin/journalctl", &unit, "--output=cat", "--lines=100", "--since=-10min", "--no-pager"];
    let text = run(systemd, "journal", &journal, JOURNAL_LIMIT).await?.text;
    Ok(Output { exit, text })
}

async fn start(
    systemd: &Systemd,
    name: &str,
    arguments: &[&str],
    limit: Duration,
    output: Option<OwnedFd>,
) -> Result<Exit, Failure> {
    // The name is a lock: what an earlier Pod started may still run, and must not meet its own kind.
    let unit = unit(name);
    let description = format!("OKE Node Manager: {name}");
    let command = Command { unit: &unit, description: &description, arguments, limit };
    systemd.run(&command, output).await.map_err(|error| match error.is_unit_exists() {
        true => Failure {
            reason: TaskReason::OperationFailed,
            message: format!("{unit} still runs: an earlier operation started it"),
        },
        false => error.into(),
    })
}

/// The unit of a command.
pub(super) fn unit(name: &str) -> String {
    format!("oke-node-{name}.service")
}

impl Output {
    /// Whether growpart, which oci-growfs calls, found no free space. Both then fail.
    pub(super) fn has_nothing_to_grow(&self) -> bool {
        self.text.contains("NOCHANGE")
    }

    /// The text, if the command succeeded.
    pub(super) fn success(self, name: &str) -> Result<String, Failure> {
        if self.exit.is_success() {
            return Ok(self.text);
        }
        let last = last_line(&self.text);
        let message = format!("{name} ended with {} {}: {last}", self.exit.result, self.exit.status);
        Err(Failure { reason: TaskReason::OperationFailed, message })
    }
}

/// The last line with words.
pub(super) fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("without output").trim()
}
