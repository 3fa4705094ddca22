//! Throughput: one connection that carries data at a bounded rate to another agent, which counts and discards it. The receiver
//! greets first, so that no other program on the port is sent data.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nettest::probe::bounds::THROUGHPUT_MS;
use nettest::probe::{Failure, ReceiveTask, Received, SendTask, Tally};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::series::{Pace, Results, of_error};
use super::socket::ProbeRoute;

/// What the receiver says first.
const GREETING: &[u8] = b"oke-node-manager network test: throughput\n";
/// The most and the fewest bytes per write: 64 KiB, and what one packet carries on any link.
const CHUNK_MAX: u64 = 64 * 1024;
const CHUNK_MIN: u64 = 1_400;
/// How much of the rate one write has, in milliseconds.
const CHUNK_MS: u64 = 5;
/// The wait when the rate allows no further chunk.
const TICK: Duration = Duration::from_micros(500);
/// After a stall no more than this much is caught up with: the rate is a bound, and the stall shows.
const CATCH_UP: Duration = Duration::from_millis(20);
/// Until a refused connection is tried again: the receiver may begin a little later.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// A connection without data keeps the receiver from others for so long.
const FIRST_DATA: Duration = Duration::from_secs(2);
/// Connections that may wait for the receiver.
const BACKLOG: i32 = 4;

/// Connects, and sends for the fixed time. It fails only where no data could be sent: how much arrived is the receiver's to say.
pub(super) fn probe(way: &ProbeRoute, task: &SendTask) -> Tally {
    let mut results = Results::default();
    results.sent();
    // A port whose connection ended a moment ago connects to the same port again only after a minute.
    let way = ProbeRoute { source_port: 0, ..way.clone() };
    let (began, timeout) = (Instant::now(), Pace::from(task).timeout);
    let sent = connect(&way, timeout).and_then(|stream| {
        let took = began.elapsed();
        greeting(&stream, began + 2 * timeout)?;
        send(&stream, task.mbits.unwrap_or(1), timeout)?;
        Ok(took)
    });
    match sent {
        Ok(took) => results.answered(took),
        Err(error) if error.kind() == ErrorKind::InvalidData => results.failed(Failure::Invalid(error.to_string())),
        Err(error) => results.failed(of_error(&error)),
    }
    results.tally()
}

fn connect(way: &ProbeRoute, timeout: Duration) -> io::Result<Socket> {
    let end = Instant::now() + timeout;
    loop {
        match way.connect(left(end).unwrap_or(RETRY_INTERVAL)) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && left(end).is_some() => sleep(RETRY_INTERVAL),
            connected => return connected,
        }
    }
}

/// Reads the receiver's greeting.
fn greeting(mut stream: &Socket, end: Instant) -> io::Result<()> {
    let mut read = Vec::with_capacity(GREETING.len());
    while read.len() < GREETING.len() {
        stream.set_read_timeout(Some(left(end).ok_or(ErrorKind::TimedOut)?))?;
        let mut buffer = [0; GREETING.len()];
        match stream.read(&mut buffer)? {
            0 => break,
            length => read.extend_from_slice(buffer.get(..length).unwrap_or_default()),
        }
    }
    if read == GREETING {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::InvalidData, "the program on the port is not a receiver of a network test"))
    }
}

/// Sends for the fixed time, not faster than requested, and waits until the receiver closes.
fn send(mut stream: &Socket, mbits: u16, timeout: Duration) -> io::Result<()> {
    let per_second = u64::from(mbits) * 1_000_000 / 8;
    let chunk = (per_second * CHUNK_MS / 1_000).clamp(CHUNK_MIN, CHUNK_MAX);
    let bytes = vec![0x5a; usize::try_from(chunk).unwrap_or(0)];
    let began = Instant::now();
    let end = began + Duration::from_millis(THROUGHPUT_MS.into());
    let mut due = began;
    while let Some(left) = left(end) {
        if due > Instant::now() {
            sleep(TICK);
            continue;
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(&bytes) {
            Ok(length) => {
                let length = u64::try_from(length).unwrap_or(0);
                due += Duration::from_nanos(length.saturating_mul(1_000_000_000) / per_second.max(1));
                due = due.max(Instant::now().checked_sub(CATCH_UP).unwrap_or(due));
            }
            // The path carries less than is to be sent, or nothing.
            Err(error) if is_timeout(&error) => break,
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(timeout))?;
    let _ = stream.read(&mut [0; 1]);
    Ok(())
}

/// Takes the data of one sender, and discards it. Ends when one connection that carried data ends, or when the time is over.
pub(super) fn receive(task: &ReceiveTask) -> io::Result<Received> {
    let began = Instant::now();
    let end = began + Duration::from_millis(task.for_ms.into());
    let domain = if task.address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let listener = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    listener.set_reuse_address(true)?;
    listener.bind(&SockAddr::from(SocketAddr::new(task.address, task.port)))?;
    listener.listen(BACKLOG)?;
    let mut received = Received::default();
    while received.bytes == 0
        && let Some(left) = left(end)
    {
        listener.set_read_timeout(Some(left))?;
        match listener.accept() {
            Ok((stream, peer)) => {
                received.from = peer.as_socket().map(|peer| peer.ip());
                if received.from == Some(task.from) {
                    discard(&stream, end, &mut received);
                }
            }
            // It ended before it was accepted.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) if is_timeout(&error) => break,
            Err(error) => return Err(error),
        }
    }
    received.listened_ms = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
    Ok(received)
}

/// Greets, reads to the end, and counts.
fn discard(mut stream: &Socket, end: Instant, received: &mut Received) {
    let mut buffer = vec![0; usize::try_from(CHUNK_MAX).unwrap_or(0)];
    let mut first = None;
    let mut wait = FIRST_DATA;
    let greeted = stream.write_all(GREETING).is_ok();
    while let Some(left) = left(end).filter(|_| greeted) {
        if stream.set_read_timeout(Some(left.min(wait))).is_err() {
            break;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                wait = left;
                received.bytes += u64::try_from(length).unwrap_or(0);
                let micros = first.get_or_insert_with(Instant::now).elapsed().as_micros();
                received.micros = u64::try_from(micros).unwrap_or(u64::MAX);
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn left(end: Instant) -> Option<Duration> {
    Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}
