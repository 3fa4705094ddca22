//! Where a plugin leaves its record. A verb never waits for it and never fails because of it (promise P1).

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::log::{self, LOG_LIMIT};
use crate::{VerbRecord, listener};

/// The way to the reader of records.
#[derive(Clone, Debug)]
pub struct Sink {
    dir: PathBuf,
    log_limit: u64,
}

/// Where a record went. For tests and counters; a plugin has nothing to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The agent received it.
    Agent,
    /// To the file: no agent listens, or it does not keep up.
    Log,
    /// Nowhere: the state directory is missing, full or of another owner.
    Lost,
}

impl Sink {
    /// A sink in the state directory `dir`. Nothing is opened yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), log_limit: LOG_LIMIT }
    }

    /// The same with another bound on the file, in bytes.
    #[must_use]
    pub fn with_log_limit(self, log_limit: u64) -> Self {
        Self { log_limit, ..self }
    }

    /// Hands the record to the agent, or else leaves it in the file, without waiting.
    pub fn send(&self, record: &VerbRecord) -> Delivery {
        if self.hand_over(record) { Delivery::Agent } else { self.keep(record) }
    }

    /// Hands the record to the agent, if that listens and keeps up. If it does not, the caller does itself what the
    /// agent would have done with it, and then [`Sink::keep`]s it.
    pub fn hand_over(&self, record: &VerbRecord) -> bool {
        send_to(&listener::socket_path(&self.dir), &record.to_line())
    }

    /// Leaves the record in the file.
    pub fn keep(&self, record: &VerbRecord) -> Delivery {
        match log::append(&self.dir, &record.to_line(), self.log_limit) {
            Ok(()) => Delivery::Log,
            Err(_) => Delivery::Lost,
        }
    }
}

/// Whether the line was taken. No listener, a dead one and a full one are all the same here.
fn send_to(socket: &Path, line: &str) -> bool {
    let sent = UnixDatagram::unbound().and_then(|sender| {
        sender.set_nonblocking(true)?;
        sender.send_to(line.as_bytes(), socket)
    });
    sent.is_ok_and(|bytes| bytes == line.len())
}
