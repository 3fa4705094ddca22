//! Datagrams. An answer shows that they arrive, and so does "port unreachable".

use std::io;
use std::time::Duration;

use nettest::probe::{SendTask, Tally};
use socket2::{Protocol, SockAddr, Socket, Type};

use super::icmp::receive;
use super::series::{Answer, Exchange, Pace, failed, send_series};
use super::socket::ProbeRoute;

struct Datagrams {
    socket: Socket,
    /// Answers carry no number: the first one answers the first datagram.
    answered: u16,
}

pub(super) fn probe(way: &ProbeRoute, task: &SendTask) -> Tally {
    match connected(way) {
        Ok(socket) => send_series(&mut Datagrams { socket, answered: 0 }, Pace::from(task)),
        Err(error) => failed(&error),
    }
}

pub(super) fn connected(way: &ProbeRoute) -> io::Result<Socket> {
    let socket = way.open(Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&SockAddr::from(way.target))?;
    Ok(socket)
}

impl Exchange for Datagrams {
    fn send(&mut self, number: u16) -> io::Result<()> {
        // Readable in a capture, and of no protocol.
        self.socket.send(format!("oke-node-manager network test {number}\n").as_bytes()).map(drop)
    }

    fn receive(&mut self, within: Duration) -> io::Result<Option<Answer>> {
        if receive(&self.socket, &mut [0; 64], within)?.is_none() {
            return Ok(None);
        }
        let number = self.answered;
        self.answered += 1;
        Ok(Some(Answer { number, failure: None }))
    }
}
