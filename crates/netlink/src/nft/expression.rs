//! What rules are made of: the matches and statements that the agent needs, no more.

use ipnetwork::IpNetwork;
use vcn::{IfName, Mark};

/// A match or a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// The packet came in by this link.
    Iifname(LinkMatch),
    /// The packet leaves by this link.
    Oifname(LinkMatch),
    /// It leaves by another link.
    OifnameNot(LinkMatch),
    /// Matches packets of this transport protocol.
    L4proto(Protocol),
    /// Its source address is in this network (which also says its family).
    SourceNet(IpNetwork),
    /// Its destination address is in this network.
    DestinationNet(IpNetwork),
    /// It is of this network's family and its source address is outside.
    SourceNetNot(IpNetwork),
    /// Its destination port. An [`Expression::L4proto`] must come before.
    DestinationPort(u16),
    /// Its ICMPv6 type. An [`Expression::L4proto`] must come before.
    Icmpv6Type(u8),
    /// Its connection's mark, under the mask, is this value.
    CtMark(Mark),
    /// Its connection's mark, under the mask, is another value.
    CtMarkNot(Mark),
    /// It goes this way in its connection.
    CtDirection(Direction),
    /// The destination of its connection was not translated; nor is it of none.
    DestinationAsSent,
    /// The destination of its connection was translated.
    DestinationTranslated,
    /// Its destination is an address of this host.
    DestinationIsLocal,
    /// Its destination is a single host's, and not this one's.
    DestinationIsAnotherHost,
    /// Its source is an address of this host.
    SourceIsLocal,
    /// A route leads to its source by this link. In prerouting chains: Linux before 6.10 knows it nowhere else.
    RouteToSource(LinkMatch),
    /// No route leads to its destination by this link. In prerouting chains.
    RouteToDestinationNot(LinkMatch),
    /// No route leads to its source by the link that it came in by. In prerouting chains.
    SourceIsElsewhere,
    /// Sets the bits of its mark under the mask; other bits stay.
    SetMark(Mark),
    /// Sets the bits of its connection's mark under the mask; other bits stay.
    ///
    /// There is no "save mark" and no "restore mark": the kernels we support copy a mark between packet and connection
    /// only as a whole, over other programs' bits. One rule per value does it: `CtMark(v)` then `SetMark(v)`.
    SetCtMark(Mark),
    /// More packets that got this far in a rule came in by its link than the rate allows. The kernel counts per link; all rules of
    /// a table count together, and must have the same rate.
    LinkExceeds(Rate),
    /// Counts packets and bytes.
    Counter,
    /// Replaces the source by an address of the outgoing link and a random port. In NAT chains after routing.
    Masquerade,
    /// Lets it pass this chain.
    Accept,
    /// Drops the packet without an answer.
    Drop,
}

/// The links that a match selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkMatch {
    /// The link of this name.
    Exact(IfName),
    /// Links whose names begin so (1–15 bytes).
    Prefix(String),
}

/// A rate of packets, and how many may exceed it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The number of packets per second.
    pub per_second: u32,
    /// Packets that pass at once after silence.
    pub burst: u32,
}

/// The transport protocols that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP, number 6 in IP headers.
    Tcp,
    /// UDP, number 17 in IP headers.
    Udp,
    /// ICMP for IPv6, number 58.
    Icmpv6,
}

impl Protocol {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmpv6 => 58,
        }
    }
}

/// A way through a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// As its first packet.
    Original,
    /// Answers to the side that began the connection.
    Reply,
}
