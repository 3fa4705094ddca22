//! Policy rules: which table a packet is routed by.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{self as wire, RuleAttribute, RuleFlags, RuleHeader, RuleMessage};
use nix::errno::Errno;
use vcn::{Family, IfName, Mark, Priority, TableId};

use crate::error::{Cause, Result};
use crate::routing::route::wire_family;
use crate::routing::socket::{Socket, Write};
use crate::wire::attributes;
use crate::wire::transport::Request;

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;

// linux/fib_rules.h
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PAD: u16 = 18;
const FRA_PROTOCOL: u16 = 21;

/// A rule that sends packets to a table. One that was added and is read back is equal to what was requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The family of the packets.
    pub family: Family,
    /// When it is read: lower is earlier.
    pub priority: Priority,
    /// Selects packets from this network.
    pub from: Option<IpNetwork>,
    /// Selects packets to this network.
    pub to: Option<IpNetwork>,
    /// Packets of this mark.
    pub fwmark: Option<Mark>,
    /// Packets that came in by this link (`lo`: packets of this host).
    pub iif: Option<IfName>,
    /// The table to look them up in; 0 of a rule that names none.
    pub table: TableId,
    /// A route of a prefix this long or shorter counts as not found, unless it refuses packets (blackhole, unreachable,
    /// prohibit). Deleting ignores it.
    pub suppress: Option<u32>,
    /// The number of the program that made it.
    pub protocol: u8,
    /// Read only: it is for all packets but those of its selector.
    pub inverted: bool,
    /// Read only: what it does.
    pub action: RuleAction,
    /// Read only: it has a selector that this type does not hold, or does something else than a lookup, so it is not our rule
    /// and cannot be written back.
    pub unmodeled: bool,
}

/// What a rule does with the packets that it selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RuleAction {
    /// Routes them by its table.
    #[default]
    Lookup,
    /// Drops the packets without an error.
    Blackhole,
    /// Drops the packets and answers "host unreachable".
    Unreachable,
    /// Drops the packets and answers "administratively prohibited".
    Prohibit,
    /// Goes on with another rule.
    Continue,
}

impl RuleAction {
    /// Whether the packets go nowhere.
    pub const fn refuses(self) -> bool {
        matches!(self, Self::Blackhole | Self::Unreachable | Self::Prohibit)
    }
}

impl From<wire::RuleAction> for RuleAction {
    fn from(action: wire::RuleAction) -> Self {
        match action {
            wire::RuleAction::ToTable => Self::Lookup,
            wire::RuleAction::Blackhole => Self::Blackhole,
            wire::RuleAction::Unreachable => Self::Unreachable,
            wire::RuleAction::Prohibit => Self::Prohibit,
            _ => Self::Continue,
        }
    }
}

impl Rule {
    /// A rule for all packets of a family.
    pub const fn new(family: Family, priority: Priority, table: TableId, protocol: u8) -> Self {
        Self {
            family,
            priority,
            from: None,
            to: None,
            fwmark: None,
            iif: None,
            table,
            suppress: None,
            protocol,
            inverted: false,
            action: RuleAction::Lookup,
            unmodeled: false,
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Cause> {
        let header = RuleHeader::parse(payload).map_err(|_| Cause::Malformed("short rule message"))?;
        let family = match header.family {
            AddressFamily::Inet => Family::Ipv4,
            AddressFamily::Inet6 => Family::Ipv6,
            _ => return Ok(None),
        };
        let mut rule = Self::new(family, Priority(0), TableId(header.table.into()), 0);
        rule.inverted = header.flags.contains(RuleFlags::Invert);
        rule.action = header.action.into();
        rule.unmodeled = rule.action != RuleAction::Lookup || header.tos != 0 || rule.inverted;
        let (mut value, mut mask) = (0, 0);
        for attribute in attributes::after(payload, header.buffer_len()) {
            match attribute? {
                (FRA_SRC, value) => {
                    rule.from = Some(attributes::network(attributes::address_of(value)?, header.src_len)?);
                }
                (FRA_DST, value) => {
                    rule.to = Some(attributes::network(attributes::address_of(value)?, header.dst_len)?);
                }
                (FRA_IIFNAME, value) => rule.iif = IfName::new(attributes::text_of(value)).ok(),
                (FRA_PRIORITY, value) => rule.priority = Priority(attributes::u32_of(value)?),
                (FRA_FWMARK, mark) => value = attributes::u32_of(mark)?,
                (FRA_FWMASK, value) => mask = attributes::u32_of(value)?,
                (FRA_TABLE, value) => rule.table = TableId(attributes::u32_of(value)?),
                (FRA_PROTOCOL, value) => rule.protocol = value.first().copied().unwrap_or(0),
                // The kernel sends it with every rule; all ones means "not used".
                (FRA_SUPPRESS_IFGROUP, value) => rule.unmodeled |= attributes::u32_of(value)? != u32::MAX,
                (FRA_SUPPRESS_PREFIXLEN, value) => {
                    rule.suppress = Some(attributes::u32_of(value)?).filter(|length| *length != u32::MAX);
                }
                (FRA_PAD, _) => {}
                _ => rule.unmodeled = true,
            }
        }
        rule.fwmark = (mask != 0).then_some(Mark { value, mask });
        Ok(Some(rule))
    }

    pub(crate) fn message(&self) -> RuleMessage {
        let from = self.from.filter(|network| network.prefix() != 0);
        let to = self.to.filter(|network| network.prefix() != 0);
        let mut message = RuleMessage::default();
        message.header.family = wire_family(self.family);
        message.header.src_len = from.map_or(0, |network| network.prefix());
        message.header.dst_len = to.map_or(0, |network| network.prefix());
        // Without an action the kernel takes the rule and then drops what it matches.
        message.header.action = wire::RuleAction::ToTable;
        let attributes = &mut message.attributes;
        attributes.reserve(8);
        attributes.push(RuleAttribute::Priority(self.priority.0));
        attributes.push(RuleAttribute::Table(self.table.0));
        attributes.push(RuleAttribute::Protocol(RouteProtocol::from(self.protocol)));
        attributes.extend(from.map(|network| RuleAttribute::Source(network.network())));
        attributes.extend(to.map(|network| RuleAttribute::Destination(network.network())));
        if let Some(Mark { value, mask }) = self.fwmark {
            attributes.push(RuleAttribute::FwMark(value));
            attributes.push(RuleAttribute::FwMask(mask));
        }
        attributes.extend(self.suppress.map(RuleAttribute::SuppressPrefixLen));
        attributes.extend(self.iif.as_ref().map(|name| RuleAttribute::Iifname(name.as_str().to_owned())));
        message
    }
}

/// As arguments of `ip rule`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |net: &IpNetwork| {
            if net.prefix() == Family::of(net.ip()).host_prefix() { net.ip().to_string() } else { net.to_string() }
        };
        // "all" is read as IPv4 by ip(8), unless the destination tells.
        let everywhere = if self.family == Family::Ipv6 && self.to.is_none() { "::/0" } else { "all" };
        let not = if self.inverted { "not " } else { "" };
        write!(f, "pref {} {not}from {}", self.priority, self.from.as_ref().map_or_else(|| everywhere.into(), host))?;
        if let Some(to) = &self.to {
            write!(f, " to {}", host(to))?;
        }
        if let Some(mark) = self.fwmark {
            write!(f, " fwmark {mark}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        match self.action {
            RuleAction::Lookup => write!(f, " lookup {}", self.table)?,
            RuleAction::Blackhole => f.write_str(" blackhole")?,
            RuleAction::Unreachable => f.write_str(" unreachable")?,
            RuleAction::Prohibit => f.write_str(" prohibit")?,
            RuleAction::Continue => f.write_str(" goto or nop")?,
        }
        self.suppress.map_or(Ok(()), |length| write!(f, " suppress_prefixlength {length}"))
    }
}

impl Rule {
    /// Whether it may select a packet of that source and destination that carries no mark: surely not if its selectors say so, as
    /// far as this type holds them.
    pub fn may_select(&self, from: Option<IpAddr>, to: IpAddr, by: Option<&IfName>) -> bool {
        let is_within = |block: Option<IpNetwork>, address| block.is_none_or(|block| block.contains(address));
        let is_selected = from.is_none_or(|from| is_within(self.from, from))
            && is_within(self.to, to)
            && self.fwmark.is_none_or(|mark| mark.value == 0)
            && self.iif.as_ref().is_none_or(|iif| by.map_or(iif.as_str() == "lo", |by| by == iif));
        is_selected != self.inverted
    }
}

impl Socket {
    /// The rules of a family, in the order the kernel reads them; none of a family that the kernel does not speak.
    ///
    /// # Errors
    /// `is_retryable()` when the list kept changing.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>> {
        let mut message = RuleMessage::default();
        message.header.family = wire_family(family);
        let listed = self.transport.list(Request { message_type: RTM_GETRULE, flags: 0 }, &message, Rule::decode);
        match listed {
            Err(Cause::Refused(refusal)) if matches!(refusal.errno, Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP) => {
                Ok(Vec::new())
            }
            listed => listed.map_err(|cause| cause.during("list rules of", family)),
        }
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// `is_already_exists()` when there is an identical one.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<()> {
        self.write(Write::Add(RTM_NEWRULE), &rule.message(), "add rule", rule)
    }

    /// Removes one rule that has everything this one has.
    ///
    /// # Errors
    /// `is_not_found()` when there is none.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<()> {
        self.write(Write::Existing(RTM_DELRULE), &rule.message(), "delete rule", rule)
    }
}
