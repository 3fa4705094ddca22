//! The client of root's socket: one request, one answer, synchronously.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a preview, which waits for the reconcile in progress.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(25);

/// TextLimits answer, in bytes; the attachments of a full node are some 100 KiB.
const LONGEST: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum QueryError {
    /// No agent listens.
    #[error("the agent is not running ({path})", path = .path.display())]
    NotRunning {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The socket answers root only.
    #[error("connecting to the agent at {path}: it answers root only; run this as root", path = .path.display())]
    NotRoot {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The agent runs and does not answer.
    #[error("requesting {request} from the agent")]
    NoAnswer {
        /// The path.
        request: String,
        #[source]
        source: io::Error,
    },
    /// The agent answered with an error.
    #[error("requesting {request} from the agent: status {status}: {body}")]
    Refused {
        /// The path.
        request: String,
        status: u16,
        body: String,
    },
}

/// Requests a path from the agent behind a socket.
pub(crate) fn query(socket: &Path, request: &str) -> Result<String, QueryError> {
    let mut stream = UnixStream::connect(socket).map_err(|source| {
        let path = socket.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => QueryError::NotRoot { path, source },
            _ => QueryError::NotRunning { path, source },
        }
    })?;
    let timeout = if request == "/plan" { PREVIEW_TIMEOUT } else { TIMEOUT };
    let answer = exchange(&mut stream, request, timeout).map_err(|source| {
        let source = match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "no answer within {} s: it is stopped, starved or hangs; `kubectl logs` of its pod shows its last actions",
                    timeout.as_secs()
                ),
            ),
            _ => source,
        };
        QueryError::NoAnswer { request: request.to_owned(), source }
    })?;
    let malformed = || QueryError::NoAnswer {
        request: request.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"),
    };
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(malformed)?;
    match status {
        200 => Ok(body.to_owned()),
        _ => Err(QueryError::Refused { request: request.to_owned(), status, body: body.trim().to_owned() }),
    }
}

/// HTTP/1.0, so that the body lasts to the end of the stream.
fn exchange(stream: &mut UnixStream, request: &str, timeout: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(format!("GET {request} HTTP/1.0\r\nHost: agent\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}
