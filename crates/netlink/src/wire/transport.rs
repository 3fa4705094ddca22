//! One request, its answers: sequence numbers, acknowledgements, lists that restart when they were interrupted.
//! Knows nothing of what messages mean. Blocking, with a deadline on every wait.

mod answer;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use self::answer::{Answer, answer};
use crate::error::Cause;

pub(crate) use self::answer::messages;

/// The longest wait for one answer. Requests queue behind the kernel's RTNL lock, which a node that tears down many
/// links holds for seconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// How often an interrupted list is read again before giving up.
const DUMP_ATTEMPTS: u32 = 6;

/// The first backoff between two attempts; it doubles, with as much again at random so that listers do not run in step.
const DUMP_PAUSE: Duration = Duration::from_millis(1);

/// The kernel fills at most 32 KiB of a list at a time. A single answer may be longer, such as that of a link with many virtual
/// functions. A pod may give a link alternative names of 64 KiB. Pages that are never written cost nothing, but 128 KiB would be
/// mapped and unmapped once per socket by the C library of plugins.
const OBJECTS_ROOM: usize = 96 * 1024;

/// Room for an acknowledgement next to the request that a refusal repeats, and for an event of a link.
const END_ROOM: usize = 4 * 1024;

const HEADER_LEN: usize = 16;

/// A netlink socket of one protocol, in the network namespace where it was opened.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: netlink_sys::Socket,
    /// Whether the kernel honors the filters of lists.
    strict: bool,
    sequence: u32,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// What a request is: its message type, and flags in addition to `NLM_F_REQUEST`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) message_type: u16,
    pub(crate) flags: u16,
}

impl Transport {
    pub(crate) fn open(protocol: isize) -> Result<Self, Cause> {
        Self::open_patient(protocol, DEADLINE)
    }

    /// The same with another bound on each wait, in whole seconds.
    pub(crate) fn open_patient(protocol: isize, patience: Duration) -> Result<Self, Cause> {
        let socket = netlink_sys::Socket::new(protocol)?;
        let deadline = TimeVal::new(i64::try_from(patience.as_secs()).unwrap_or(i64::MAX), 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &deadline)?;
        socket.set_ext_ack(true)?;
        // A refusal repeats the request. netfilter's may be many, and each as long as what is received at most.
        if protocol == NETLINK_NETFILTER {
            socket.set_cap_ack(true)?;
        }
        Ok(Self {
            socket,
            strict: false,
            sequence: 0,
            sent: Vec::with_capacity(512),
            received: Vec::with_capacity(END_ROOM),
        })
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn acknowledged(&mut self, request: Request, body: &impl Emitable) -> Result<(), Cause> {
        self.begin();
        self.append(Request { flags: request.flags | NLM_F_ACK, ..request }, body);
        self.expect(END_ROOM + self.sent.len());
        self.send()?;
        self.answers(|_, _| Ok(())).map(|_| ())
    }

    /// Sends a request that has exactly one object as its answer.
    pub(crate) fn one<T>(
        &mut self,
        request: Request,
        body: &impl Emitable,
        mut decode: impl FnMut(&[u8]) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        self.begin();
        // The acknowledgement after the object costs nothing extra: it comes in the same read or the next.
        self.append(Request { flags: request.flags | NLM_F_ACK, ..request }, body);
        self.expect(OBJECTS_ROOM);
        self.send()?;
        let mut found = None;
        self.answers(|_, payload| {
            found = Some(decode(payload)?);
            Ok(())
        })?;
        found.ok_or(Cause::Malformed("acknowledged without the object that was requested"))
    }

    /// Reads a whole list; `decode` says `None` to leave an object out. Read again when it changed meanwhile.
    pub(crate) fn list<T>(
        &mut self,
        request: Request,
        body: &impl Emitable,
        mut decode: impl FnMut(&[u8]) -> Result<Option<T>, Cause>,
    ) -> Result<Vec<T>, Cause> {
        self.fold(request, body, Vec::new, |found, payload| {
            found.extend(decode(payload)?);
            Ok(())
        })
    }

    /// Reads a whole list into what `empty` makes, one object after the other: for lists of which not all is kept. Read
    /// again, into another, when it changed meanwhile.
    pub(crate) fn fold<S>(
        &mut self,
        request: Request,
        body: &impl Emitable,
        empty: impl Fn() -> S,
        mut each: impl FnMut(&mut S, &[u8]) -> Result<(), Cause>,
    ) -> Result<S, Cause> {
        for attempt in 0..DUMP_ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(pause(attempt));
            }
            self.begin_list(request, body)?;
            let mut found = empty();
            let whole = self.answers(|_, payload| each(&mut found, payload))?;
            if whole {
                return Ok(found);
            }
        }
        Err(Cause::Interrupted(DUMP_ATTEMPTS))
    }

    /// Requests a list that is read piece by piece, because the whole may be too long for memory. It is not read again when
    /// it changed meanwhile.
    pub(crate) fn begin_list(&mut self, request: Request, body: &impl Emitable) -> Result<(), Cause> {
        if !self.strict {
            // Without it the kernel ignores every filter but the family.
            self.socket.set_netlink_get_strict_chk(true)?;
            self.strict = true;
        }
        self.begin();
        self.append(Request { flags: request.flags | NLM_F_DUMP, ..request }, body);
        self.expect(OBJECTS_ROOM);
        self.send()
    }

    /// Makes room for answers of this length.
    fn expect(&mut self, length: usize) {
        self.received.clear();
        self.received.reserve(length);
    }

    /// Hands the list's next few objects to `each`. Says whether there is more; after a no, and after a failure, there is
    /// nothing to be waited for.
    pub(crate) fn next_piece(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), Cause>) -> Result<bool, Cause> {
        receive(&self.socket, &mut self.received)?;
        for message in messages(&self.received) {
            let message = message?;
            // An answer to an earlier request whose wait timed out.
            if message.sequence_number() != self.sequence {
                continue;
            }
            match answer(&message)? {
                Some(Answer::Object(_, payload)) => each(payload)?,
                Some(Answer::End(Err(refusal))) => return Err(Cause::Refused(refusal)),
                Some(Answer::End(Ok(()))) => return Ok(false),
                None => {}
            }
        }
        Ok(true)
    }

    /// Starts a send buffer.
    pub(crate) fn begin(&mut self) {
        self.sent.clear();
    }

    pub(crate) fn appended(&self) -> &[u8] {
        &self.sent
    }

    /// Adds one request to the send buffer. Each has its own sequence number; the last one's answers are waited for.
    pub(crate) fn append(&mut self, request: Request, body: &impl Emitable) {
        self.sequence = self.sequence.wrapping_add(1);
        let start = self.sent.len();
        let length = HEADER_LEN + body.buffer_len();
        self.sent.resize(start + length.next_multiple_of(4), 0);
        let mut header = NetlinkHeader::default();
        header.length = u32::try_from(length).unwrap_or(u32::MAX);
        header.message_type = request.message_type;
        header.flags = request.flags | NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        if let Some((head, tail)) = self.sent.get_mut(start..start + length).and_then(|m| m.split_at_mut_checked(16)) {
            header.emit(head);
            body.emit(tail);
        }
    }

    /// Sends what was appended, in one system call.
    pub(crate) fn send(&self) -> Result<(), Cause> {
        loop {
            match self.socket.send(&self.sent, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands every answer to the last request to `each`. Says whether the list was whole. All answers are consumed
    /// even after a failure of `each`, so that the socket stays usable.
    fn answers(&mut self, mut each: impl FnMut(u16, &[u8]) -> Result<(), Cause>) -> Result<bool, Cause> {
        let (mut whole, mut failure) = (true, None);
        loop {
            receive(&self.socket, &mut self.received)?;
            for message in messages(&self.received) {
                let message = message?;
                // An answer to an earlier request whose wait timed out.
                if message.sequence_number() != self.sequence {
                    continue;
                }
                whole &= message.flags() & NLM_F_DUMP_INTR == 0;
                match answer(&message)? {
                    Some(Answer::Object(kind, payload)) if failure.is_none() => failure = each(kind, payload).err(),
                    Some(Answer::Object(..)) | None => {}
                    Some(Answer::End(Err(refusal))) => return Err(Cause::Refused(refusal)),
                    Some(Answer::End(Ok(()))) => return failure.map_or(Ok(whole), Err),
                }
            }
        }
    }

    /// Waits for an event that is the one, or for the end of the last request, whichever comes first.
    pub(crate) fn event_or_end(&mut self, is_it: impl Fn(u16, &[u8]) -> bool) -> Result<(), Cause> {
        loop {
            receive(&self.socket, &mut self.received)?;
            for message in messages(&self.received) {
                let message = message?;
                match answer(&message)? {
                    Some(Answer::Object(kind, payload)) if is_it(kind, payload) => return Ok(()),
                    Some(Answer::End(end)) if message.sequence_number() == self.sequence => {
                        return end.map_err(Cause::Refused);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Waits for a batch's end: the acknowledgement of its message `last`, or the first refusal of any since `first`,
    /// with that one's distance from `first`. What comes after a refusal is skipped by the next request.
    pub(crate) fn batch_answers(&mut self, first: u32, last: u32) -> Result<(), (Option<u32>, Cause)> {
        loop {
            receive(&self.socket, &mut self.received).map_err(|cause| (None, cause))?;
            for message in messages(&self.received) {
                let message = message.map_err(|cause| (None, cause))?;
                let offset = message.sequence_number().wrapping_sub(first);
                if offset > last.wrapping_sub(first) {
                    continue;
                }
                match answer(&message).map_err(|cause| (None, cause))? {
                    Some(Answer::End(Err(refusal))) => return Err((Some(offset), Cause::Refused(refusal))),
                    Some(Answer::End(Ok(()))) if message.sequence_number() == last => return Ok(()),
                    _ => {}
                }
            }
        }
    }

    /// The sequence number of the request appended last.
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    pub(crate) const fn socket(&self) -> &netlink_sys::Socket {
        &self.socket
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads one datagram of the kernel's into `buffer`.
pub(crate) fn receive(socket: &netlink_sys::Socket, buffer: &mut Vec<u8>) -> Result<(), Cause> {
    loop {
        buffer.clear();
        match socket.recv_from(buffer, libc::MSG_TRUNC) {
            // Other processes may send to our port number; only the kernel's is 0.
            Ok((_, sender)) if sender.port_number() != 0 => {}
            Ok((length, _)) if length > buffer.len() => {
                return Err(Cause::Malformed("an answer longer than the receive buffer"));
            }
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Cause::TimedOut),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The backoff before an attempt: doubling, plus up to as much again.
fn pause(attempt: u32) -> Duration {
    let base = DUMP_PAUSE * 2_u32.saturating_pow(attempt.min(8));
    let random = RandomState::new().hash_one(attempt) % u64::try_from(base.as_micros()).unwrap_or(1).max(1);
    base + Duration::from_micros(random)
}
