//! Queries for the address of one name. "No such name" is an answer: the resolver works.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use nettest::probe::{Failure, SendTask, Tally};
use socket2::Socket;

use super::icmp::receive;
use super::series::{Answer, Exchange, Pace, failed, of_error, send_series};
use super::socket::ProbeRoute;
use super::tcp::one_by_one;
use super::udp::connected;

/// A name that exists.
const NAME: &str = "kubernetes.io";
/// Header flags: recursion desired.
const RECURSION: [u8; 2] = [0x01, 0x00];
const TYPE_A: [u8; 2] = [0, 1];
const TYPE_AAAA: [u8; 2] = [0, 28];
const CLASS_IN: [u8; 2] = [0, 1];
const NO_ERROR: u8 = 0;
const NO_SUCH_NAME: u8 = 3;

struct Queries<'a> {
    socket: Socket,
    task: &'a SendTask,
}

pub(super) fn probe(way: &ProbeRoute, task: &SendTask) -> Tally {
    let pace = Pace::from(task);
    if !task.over_tcp {
        return match connected(way) {
            Ok(socket) => send_series(&mut Queries { socket, task }, pace),
            Err(error) => failed(&error),
        };
    }
    let mut number = 0;
    one_by_one(pace, |results| {
        let began = Instant::now();
        number += 1;
        match over_tcp(way, task, number, pace.timeout) {
            Ok(Some(Answer { failure: None, .. })) => results.answered(began.elapsed()),
            Ok(Some(Answer { failure: Some(failure), .. })) => results.failed(failure),
            Ok(None) => results.failed(Failure::Invalid("the answer is not DNS".to_owned())),
            Err(error) => results.failed(of_error(&error)),
        }
    })
}

impl Exchange for Queries<'_> {
    fn send(&mut self, number: u16) -> io::Result<()> {
        self.socket.send(&query(self.task, number)).map(drop)
    }

    fn receive(&mut self, within: Duration) -> io::Result<Option<Answer>> {
        let mut buffer = [0; 1500];
        let Some(length) = receive(&self.socket, &mut buffer, within)? else { return Ok(None) };
        Ok(answer(buffer.get(..length).unwrap_or_default()))
    }
}

/// One query on a connection of its own, where each message follows its length.
fn over_tcp(way: &ProbeRoute, task: &SendTask, number: u16, within: Duration) -> io::Result<Option<Answer>> {
    let mut socket = way.connect(within)?;
    socket.set_read_timeout(Some(within))?;
    socket.set_write_timeout(Some(within))?;
    let query = query(task, number);
    let length = u16::try_from(query.len()).unwrap_or(0).to_be_bytes();
    socket.write_all(&[&length[..], &query].concat())?;
    let mut head = [0; 14];
    socket.read_exact(&mut head)?;
    Ok(head.get(2..).and_then(answer))
}

/// A query whose number is its identifier.
fn query(task: &SendTask, number: u16) -> Vec<u8> {
    let name = task.name.as_deref().unwrap_or(NAME).trim_end_matches('.');
    let mut message = number.to_be_bytes().to_vec();
    message.extend(RECURSION);
    // One question, and nothing else.
    message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let label = label.as_bytes().get(..label.len().min(63)).unwrap_or_default();
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label);
    }
    message.push(0);
    let is_v6 = task.source.is_some_and(|source| source.is_ipv6());
    message.extend(if is_v6 { TYPE_AAAA } else { TYPE_A });
    message.extend(CLASS_IN);
    message
}

/// What the header of a message answers.
fn answer(message: &[u8]) -> Option<Answer> {
    let &[high, low, flags, code, ..] = message else { return None };
    let is_response = flags & 0x80 != 0;
    let failure = match code & 0x0f {
        NO_ERROR | NO_SUCH_NAME => None,
        2 => Some(Failure::Invalid("the resolver answers SERVFAIL".to_owned())),
        5 => Some(Failure::Invalid("the resolver answers REFUSED".to_owned())),
        code => Some(Failure::Invalid(format!("the resolver answers code {code}"))),
    };
    is_response.then(|| Answer { number: u16::from_be_bytes([high, low]), failure })
}
