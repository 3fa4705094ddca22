//! The document on stdin: bounded in size and in time, never cut short.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{Error, ErrorCode};

/// Far above the largest honest document: a chain's result and all annotations of a pod (256 KiB) are well below 1 MiB.
pub(crate) const INPUT_LIMIT: usize = 8 << 20;

/// By then a caller has written its document and closed stdin; one that has not never will.
const INPUT_TIME: Duration = Duration::from_secs(5);

/// What most documents fit in, so that reading does not begin by growing.
const USUAL_SIZE: usize = 16 << 10;

/// Everything up to the end of `stdin`.
pub(crate) fn read(stdin: &mut dyn Read) -> Result<Vec<u8>, Error> {
    let mut input = Vec::with_capacity(USUAL_SIZE);
    let limit = u64::try_from(INPUT_LIMIT).unwrap_or(u64::MAX).saturating_add(1);
    match stdin.take(limit).read_to_end(&mut input) {
        Ok(_) if input.len() > INPUT_LIMIT => Err(Error::new(
            ErrorCode::DECODING_FAILURE,
            format!("the configuration on stdin is larger than {} MiB: make it smaller", INPUT_LIMIT >> 20),
        )),
        Ok(_) => Ok(input),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Error::new(
            ErrorCode::IO_FAILURE,
            format!(
                "stdin did not end within {} s ({} bytes came): the caller must close it after the configuration",
                INPUT_TIME.as_secs(),
                input.len()
            ),
        )),
        Err(error) => {
            let msg = "cannot read the configuration from stdin: the runtime must give a pipe or a file to read";
            Err(Error::new(ErrorCode::IO_FAILURE, msg).caused_by(&error))
        }
    }
}

/// This process's stdin, with a deadline for all of it. Not buffered: `read_to_end` reads large pieces, and `std`'s buffer
/// and lock are a hundredth of an ADD.
#[derive(Debug)]
pub(crate) struct DeadlineStdin {
    stdin: BorrowedFd<'static>,
    until: Instant,
}

impl Default for DeadlineStdin {
    fn default() -> Self {
        Self { stdin: rustix::stdio::stdin(), until: Instant::now() + INPUT_TIME }
    }
}

impl Read for DeadlineStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut waited = [PollFd::new(self.stdin, PollFlags::POLLIN)];
            match poll(&mut waited, timeout) {
                Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                // The timeout is in whole milliseconds: wait again for the rest.
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            match nix::unistd::read(self.stdin, buffer) {
                Err(Errno::EINTR | Errno::EAGAIN) => continue,
                other => return other.map_err(Into::into),
            }
        }
    }
}
