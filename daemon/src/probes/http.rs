//! GET requests, one after the other: the status line is all that is read. Redirects are not followed.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use api::probe::{Failure, SendTask, Tally};

use super::socket::Way;
use super::target::Destination;
use super::tcp::one_by_one;
use super::volley::{Pace, of_error};

/// More than any status line.
const LONGEST: usize = 256;

pub(super) fn probe(way: &Way, task: &SendTask, destination: &Destination) -> Tally {
    let pace = Pace::from(task);
    let path = task.path.as_deref().or(destination.path).unwrap_or("/");
    // The version 2 of the metadata service refuses requests without it, so that a misled proxy cannot ask.
    let authorization = if destination.metadata { "Authorization: Bearer Oracle\r\n" } else { "" };
    let host =
        if destination.host.contains(':') { format!("[{}]", destination.host) } else { destination.host.clone() };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: oke-node-agent\r\n{authorization}Connection: close\r\n\r\n"
    );
    one_by_one(pace, |results| {
        let began = Instant::now();
        match status(way, &request, pace.timeout) {
            Ok(Some(status)) if status < 400 => results.answered(began.elapsed()),
            Ok(Some(status)) => results.failed(Failure::Status(status)),
            Ok(None) => results.failed(Failure::Invalid("the answer is no HTTP".to_owned())),
            Err(error) => results.failed(of_error(&error)),
        }
    })
}

/// The status of the answer, or nothing if it is no HTTP.
fn status(way: &Way, request: &str, within: Duration) -> io::Result<Option<u16>> {
    let end = Instant::now() + within;
    let mut socket = way.connect(within)?;
    let left = || end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_write_timeout(Some(left()))?;
    socket.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < LONGEST {
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left()))?;
        let mut buffer = [0; LONGEST];
        match socket.read(&mut buffer)? {
            0 => break,
            length => line.extend_from_slice(buffer.get(..length).unwrap_or_default()),
        }
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split_whitespace();
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    Ok(words.next().filter(|_| is_http).and_then(|status| status.parse().ok()))
}
