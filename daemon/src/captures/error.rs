//! Why a capture is refused or fails.

use std::io;

use channel::Reply;
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum CaptureError {
    /// It cannot be carried out as requested.
    #[error("{0}")]
    Request(String),
    #[error("the agent's setting CAPTURES is {0}")]
    NotEnabled(&'static str),
    #[error("the node keeps {0} captures already; delete one of their NodeTasks, or wait until one is removed")]
    TooMany(usize),
    #[error("another capture has this uid")]
    Other,
    #[error("this capture does not exist: it was removed after its time, or the agent restarted")]
    Missing,
    #[error(
        "{free_mib} MiB of {total_mib} MiB are free where captures are kept; a capture leaves 10 % and 2 GiB free, and this one may \
         take {size_mib} MiB"
    )]
    NoSpace { free_mib: u64, total_mib: u64, size_mib: u64 },
    #[error("read the free space: {0}")]
    Space(#[source] io::Error),
    #[error("capture packets: {0}")]
    Packets(String),
    #[error("write {0}: {1}")]
    Write(&'static str, #[source] io::Error),
    #[error("start a thread: {0}")]
    Thread(#[source] io::Error),
}

impl CaptureError {
    pub(crate) fn reply(&self) -> Reply {
        let status = match self {
            Self::Request(_) => 400,
            Self::NotEnabled(_) => 403,
            Self::Missing => 404,
            Self::Other => 409,
            Self::TooMany(_) => 429,
            Self::NoSpace { .. } => 507,
            Self::Space(_) | Self::Packets(_) | Self::Write(..) | Self::Thread(_) => 500,
        };
        Reply::text(status, &format!("{self}\n"))
    }
}
