//! The client of root's socket: one request, one answer, synchronously.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a preview, which waits for the reconcile in progress.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(25);

/// The longest answer, in bytes; the attachments of a full node are some 100 KiB.
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum QueryError {
    #[error("the agent is not running ({0})")]
    NotRunning(String),
    /// The agent runs and does not answer; it would delay the next request as well.
    #[error("{0}")]
    NoAnswer(String),
    #[error("{0}")]
    Other(String),
}

/// Requests a path from the agent behind a socket.
pub(crate) fn query(socket: &Path, request: &str) -> Result<String, QueryError> {
    let path = socket.display();
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => QueryError::Other(format!(
            "connecting to the agent at {path}: it answers root only; run this as root: {error}"
        )),
        _ => QueryError::NotRunning(format!("{path}: {error}")),
    })?;
    let timeout = if request == "/plan" { PREVIEW_TIMEOUT } else { TIMEOUT };
    let no_answer = |cause: &str| QueryError::NoAnswer(format!("requesting {request} from the agent: {cause}"));
    let answer = exchange(&mut stream, request, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => no_answer(&format!(
            "no answer within {} s: it is stopped, starved or hangs; `kubectl logs` of its pod shows its last actions",
            timeout.as_secs()
        )),
        _ => no_answer(&error.to_string()),
    })?;
    let malformed = || no_answer("the answer is not HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status: u16 = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(malformed)?;
    match status {
        200 => Ok(body.to_owned()),
        _ => Err(QueryError::Other(format!("requesting {request} from the agent: status {status}: {}", body.trim()))),
    }
}

/// HTTP/1.0, so that the body lasts to the end of the stream.
fn exchange(stream: &mut UnixStream, request: &str, timeout: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(format!("GET {request} HTTP/1.0\r\nHost: agent\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
    Ok(answer)
}
