//! The nf_tables socket: one transaction to write, the comments of rules to read.

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NetlinkSerializable};
use netlink_packet_netfilter::nftables::{NfTablesMessage, RuleAttribute, RuleMessage};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;

use super::{Table, TableFamily, encode, observed};
use crate::error::{Cause, Refusal, Result};
use crate::netns::Netns;
use crate::wire::transport::{Request, Transport};

pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;

/// An nf_tables socket. It belongs to the network namespace where it was opened.
#[derive(Debug)]
pub struct NftSocket {
    pub(super) transport: Transport,
}

impl NftSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel has no netfilter.
    pub fn open() -> Result<Self> {
        match Transport::open(NETLINK_NETFILTER) {
            Ok(transport) => Ok(Self { transport }),
            Err(cause) => Err(cause.during("open", "a netfilter socket")),
        }
    }

    /// Opens a socket in another network namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered (CAP_SYS_ADMIN), and as [`Socket::open`].
    pub fn open_in(netns: &Netns) -> Result<Self> {
        netns.run(Self::open)?
    }

    /// Makes tables be exactly these: on success they hold these chains with these rules and nothing else; on failure all of
    /// them are as they were. Counters start again.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel has no nf_tables; otherwise the error names the table, the chain or the rule.
    pub fn replace_tables(&mut self, tables: &[Table]) -> Result<()> {
        const OPERATION: &str = "replace nft table";
        let (mut batch, mut subjects) = (Vec::new(), Vec::new());
        for table in tables {
            let (family, name) = (table.family, &table.name);
            let whole = format!("{family} {name}");
            let mut push = |flags, message, subject| {
                batch.push((family, flags, message));
                subjects.push(subject);
            };
            // Deleting needs a table to be there; adding one that is there does nothing.
            push(NLM_F_CREATE, NfTablesMessage::NewTable(encode::table(name)), whole.clone());
            push(0, NfTablesMessage::DeleteTable(encode::table(name)), whole.clone());
            push(NLM_F_CREATE, NfTablesMessage::NewTable(encode::table(name)), whole.clone());
            if let Some(set) = encode::set(table) {
                push(NLM_F_CREATE, set, format!("{whole}, set of links"));
            }
            for chain in &table.chains {
                let subject = format!("{whole}, chain {}", chain.name);
                match encode::chain(family, name, chain) {
                    Ok(message) => push(NLM_F_CREATE, message, subject),
                    Err(cause) => return Err(cause.during(OPERATION, subject)),
                }
                for rule in &chain.rules {
                    let subject = format!("{whole}, chain {}, rule \"{}\"", chain.name, rule.comment);
                    match encode::rule(name, &chain.name, rule) {
                        Ok(message) => push(NLM_F_CREATE | NLM_F_APPEND, message, subject),
                        Err(cause) => return Err(cause.during(OPERATION, subject)),
                    }
                }
            }
        }
        self.transact(batch).map_err(|(position, cause)| {
            let subject = position.and_then(|position| subjects.get(position)).map_or("transaction", String::as_str);
            cause.during(OPERATION, subject)
        })
    }

    /// Removes the tables of a name with all that is in them, in each family that we make tables for. An absent table is not an
    /// error.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel has no nf_tables.
    pub fn delete_tables(&mut self, name: &str) -> Result<()> {
        for family in TableFamily::ALL {
            match self.transact(vec![(family, 0, NfTablesMessage::DeleteTable(encode::table(name)))]) {
                Err((_, cause)) if cause.errno() == Some(Errno::ENOENT) => {}
                done => done.map_err(|(_, cause)| cause.during("delete nft table", format!("{family} {name}")))?,
            }
        }
        Ok(())
    }

    /// The comments of a table's rules, in the order of chains and rules; `None` when the table is absent.
    ///
    /// # Errors
    /// `is_retryable()` when the tables kept changing; `is_unsupported()` when the kernel has no nf_tables.
    pub fn comments(&mut self, family: TableFamily, name: &str) -> Result<Option<Vec<String>>> {
        self.comments_cause(family, name).map_err(|cause| cause.during("read nft table", format!("{family} {name}")))
    }

    fn comments_cause(&mut self, family: TableFamily, name: &str) -> Result<Option<Vec<String>>, Cause> {
        let (request, body) = message(family.number(), 0, NfTablesMessage::GetTable(encode::table(name)));
        match self.transport.one(request, &body, |_| Ok(())) {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => return Ok(None),
            // Netfilter without nf_tables (IPVS and sets bring it) calls a message of an unknown kind invalid.
            Err(cause) if cause.errno() == Some(Errno::EINVAL) => {
                return Err(Cause::Refused(Refusal { errno: Errno::EOPNOTSUPP, text: None }));
            }
            found => found?,
        }
        let rule = RuleMessage { attributes: vec![RuleAttribute::Table(name.to_owned())] };
        let (request, body) = message(family.number(), 0, NfTablesMessage::GetRule(rule));
        self.transport.list(request, &body, |payload| observed::rule(payload, name)).map(Some)
    }

    /// Sends a transaction. A failure says the position of the message that the kernel refused, or `None` when it
    /// refused the transaction as a whole.
    fn transact(&mut self, batch: Vec<(TableFamily, u16, NfTablesMessage)>) -> Result<(), (Option<usize>, Cause)> {
        self.transport.begin();
        let (request, body) = control(ControlMessage::BatchBegin);
        self.transport.append(request, &body);
        let begin = self.transport.sequence();
        let count = batch.len();
        for (position, (family, flags, inner)) in batch.into_iter().enumerate() {
            // Kernels before 6.10 acknowledge no "end of batch". They go through all messages even after a failure, so
            // the last one's acknowledgement comes after every refusal.
            let acknowledge = if position + 1 == count { NLM_F_ACK } else { 0 };
            let (request, body) = message(family.number(), flags | acknowledge, inner);
            self.transport.append(request, &body);
        }
        let last = self.transport.sequence();
        let (request, body) = control(ControlMessage::BatchEnd);
        self.transport.append(request, &body);
        self.transport.send().map_err(|cause| (None, cause))?;
        self.transport.batch_answers(begin, last).map_err(|(offset, cause)| {
            // The first message is the batch's own.
            (offset.and_then(|offset| usize::try_from(offset).ok()?.checked_sub(1)), cause)
        })
    }
}

/// A message about tables of a family, or of all (0).
pub(super) fn message(family: u8, flags: u16, inner: NfTablesMessage) -> (Request, NetfilterMessage) {
    let body = NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Other(family), 0, 0), inner);
    (Request { message_type: body.message_type(), flags }, body)
}

/// A batch's begin or end, which names the subsystem whose batch it is.
fn control(inner: ControlMessage) -> (Request, NetfilterMessage) {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, NFNL_SUBSYS_NFTABLES);
    let body = NetfilterMessage::new(header, inner);
    (Request { message_type: NetlinkSerializable::message_type(&body), flags: 0 }, body)
}
