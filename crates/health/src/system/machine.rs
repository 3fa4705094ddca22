//! The machine that this program runs on: Linux.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use vcn::{ConntrackCounts, HealthReporter};

use super::{Answer, Clock, Space, System};

/// The newest part of the kernel's log that is read. A burst longer than this hides older lines, never newer ones.
const LOG_BYTES: usize = 128 << 10;

/// The longest answer that is read.
const ANSWER_BYTES: u64 = 16 << 10;

/// The longest page of metrics that is read: eight GPUs take 100 KiB with all metrics, 56 MIG instances five times that.
const PAGE_BYTES: u64 = 1 << 20;

/// The machine that this program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl System for Machine {
    fn clock(&self) -> io::Result<Clock> {
        adjtimex()
    }

    fn kernel_log(&self) -> io::Result<String> {
        read_all()
    }

    fn conntrack_counts(&self) -> io::Result<ConntrackCounts> {
        netlink::conntrack::counts().map_err(io::Error::other)
    }

    fn health_reporters(&self) -> io::Result<Vec<HealthReporter>> {
        netlink::devlink::health_reporters().map_err(io::Error::other)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let found = nix::sys::statvfs::statvfs(path)?;
        let unit = found.fragment_size();
        Ok(Space {
            bytes: found.blocks().saturating_mul(unit),
            available: found.blocks_available().saturating_mul(unit),
            files: found.files(),
            files_free: found.files_available(),
        })
    }

    fn get(&self, address: SocketAddr, path: &str, deadline: Duration) -> io::Result<Answer> {
        // The metadata service answers only requests that carry this header; other services ignore it.
        Request { address, path, headers: "Authorization: Bearer Oracle\r\n" }.send(deadline, ANSWER_BYTES)
    }

    fn page(&self, address: SocketAddr, path: &str, deadline: Duration) -> io::Result<Answer> {
        let answer = Request { address, path, headers: "" }.send(deadline, PAGE_BYTES + 1)?;
        if answer.body.len() as u64 > PAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the page is longer than 1 MiB"));
        }
        Ok(answer)
    }
}

/// An HTTP/1.0 GET over plain TCP.
struct Request<'a> {
    address: SocketAddr,
    path: &'a str,
    headers: &'a str,
}

impl Request<'_> {
    /// The answer, of which at most so many bytes are read, all of it before the deadline.
    fn send(&self, deadline: Duration, max_bytes: u64) -> io::Result<Answer> {
        let Self { address, path, headers } = self;
        let begun = Instant::now();
        let mut stream = TcpStream::connect_timeout(address, deadline)?;
        stream.set_write_timeout(Some(deadline))?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        let mut piece = [0; 16 << 10];
        while (bytes.len() as u64) < max_bytes {
            let left = deadline.saturating_sub(begun.elapsed());
            // A time of 0 would mean none.
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let count = stream.read(&mut piece)?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))?;
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
        Ok(Answer { status, body, took: begun.elapsed() })
    }
}

#[expect(unsafe_code, reason = "no crate of the workspace wraps adjtimex")]
fn adjtimex() -> io::Result<Clock> {
    // SAFETY: timex is plain data, for which all zeros are valid; with no modes set, the kernel only fills it in.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let synchronized = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    Ok(Clock { synchronized, estimated_error_micros: timex.esterror })
}

/// `SYSLOG_ACTION_READ_ALL`: /dev/kmsg would need a device that containers may not open unless they are privileged.
#[expect(unsafe_code, reason = "no crate of the workspace wraps syslog(2)")]
fn read_all() -> io::Result<String> {
    const READ_ALL: libc::c_int = 3;
    let mut bytes = vec![0_u8; LOG_BYTES];
    let room = libc::c_int::try_from(bytes.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel writes at most `room` bytes to `bytes`, which has as many.
    let length = unsafe { libc::klogctl(READ_ALL, bytes.as_mut_ptr().cast(), room) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
