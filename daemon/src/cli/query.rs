//! The subcommands' side of root's socket: one question, one answer, synchronously.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a preview may, which waits for the pass in progress.
const PATIENCE_FOR_A_PREVIEW: Duration = Duration::from_secs(25);

/// The most that is taken for an answer: a full node's pools are some 100 KiB.
const LONGEST: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("the agent is not running ({path})", path = .path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// What connecting said.
        #[source]
        source: io::Error,
    },
    /// Only root may ask.
    #[error("asking the agent at {path}: it answers root alone; ask as root", path = .path.display())]
    NotRoot {
        /// The socket.
        path: PathBuf,
        /// What connecting said.
        #[source]
        source: io::Error,
    },
    /// Somebody listens and does not answer.
    #[error("asking the agent for {question}")]
    Silent {
        /// What was asked.
        question: String,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// The answer is a refusal.
    #[error("the agent answers {question} with status {status}: {body}")]
    Refused {
        /// What was asked.
        question: String,
        /// The HTTP status.
        status: u16,
        /// What it says.
        body: String,
    },
}

/// Asks the agent behind a socket.
///
/// # Errors
/// [`AskError::NotRunning`] when there is none.
pub fn ask(socket: &Path, question: &str) -> Result<String, AskError> {
    let mut stream = UnixStream::connect(socket).map_err(|source| {
        let path = socket.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => AskError::NotRoot { path, source },
            _ => AskError::NotRunning { path, source },
        }
    })?;
    let patience = if question == "/plan" { PATIENCE_FOR_A_PREVIEW } else { PATIENCE };
    let answer = exchange(&mut stream, question, patience).map_err(|source| {
        let source = match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "no answer within {} s: it is stopped, starved or hangs; `kubectl logs` of its pod says what it did last",
                    patience.as_secs()
                ),
            ),
            _ => source,
        };
        AskError::Silent { question: question.to_owned(), source }
    })?;
    let malformed = || AskError::Silent {
        question: question.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"),
    };
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(malformed)?;
    match status {
        200 => Ok(body.to_owned()),
        _ => Err(AskError::Refused { question: question.to_owned(), status, body: body.trim().to_owned() }),
    }
}

/// HTTP/1.0, so that the body simply lasts to the end.
fn exchange(stream: &mut UnixStream, question: &str, patience: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(format!("GET {question} HTTP/1.0\r\nHost: agent\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}
