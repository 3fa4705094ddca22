//! The rules of our nft tables. A rule is recognized by its text, which it carries in the kernel as its comment,
//! so `nft list table inet vcn-native` reads like this list; what is about ARP is in `table arp vcn-native`.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::nft::Rate;
use serde::{Deserialize, Serialize};
use vcn::{Family, HOST_LINK_PREFIX, IfName, METADATA_ADDRESS, METADATA_ADDRESS_V6, Mark};

/// One rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NftRule {
    /// What it is for; observed rules of an unknown version are known by their text only.
    #[serde(default)]
    pub kind: Option<NftRuleKind>,
    /// Its text, the comment in the kernel.
    pub text: String,
}

/// What our rules do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NftRuleKind {
    /// Pods reach the VCN resolver, the time server and (where allowed) the metadata service as the primary VNIC,
    /// the only one those answer.
    MasqueradeMetadata {
        /// Of which address.
        family: Family,
        /// The primary VNIC's link.
        link: IfName,
    },
    /// Pods may ask this TCP or UDP port of the metadata address.
    AcceptMetadataPort {
        /// Of which address.
        family: Family,
        /// `tcp` or `udp`.
        transport: Transport,
        /// 53, 123 or 80.
        port: u16,
    },
    /// What comes in by this link, for this host, makes its connection's mark this one: what is answered on it, later and
    /// perhaps by a pod, has to leave there. Before the address is translated, for after it the packet is for a pod.
    RememberWayIn {
        /// A VNIC's link.
        link: IfName,
        /// Its mark.
        mark: Mark,
    },
    /// Packets of connections of this mark get it too, for the rule that routes by it. After addresses are translated:
    /// what is on its way to a Service's address is not looked at, for it has none of our marks.
    MarkPackets {
        /// A VNIC's mark.
        mark: Mark,
        /// Answers alone. What is asked by a secondary VNIC may have to go to where the VNIC's table does not lead (a
        /// container's bridge). By the primary VNIC both are marked: what asks is routed by the main table anyway, and
        /// who checks with the mark whether the way back is by the same link (firewalld's IPv6_rpfilter,
        /// src_valid_mark) finds that it is.
        answers: bool,
    },
    /// The rest of 169.254.0.0/16 is the host's own (iSCSI boot disks): dropped from pods.
    DropLinkLocal,
    /// What else may answer at the IPv6 metadata address is not for pods either.
    DropMetadataV6,
    /// What is on the host's loopback is for the host alone. portmap lets its links carry such packets (`route_localnet`) where it
    /// translates sources. IPv6 needs no rule: the kernel itself drops what comes in by another link for ::1.
    DropLoopback,
    /// A pod has few neighbours to ask for. What it sends beyond a rate is dropped, for each makes an entry of the host's tables of
    /// neighbours, which have room for 1024 as a rule.
    LimitNeighbours {
        /// What is limited.
        of: NeighbourTraffic,
    },
    /// No pod is a router. A host whose kernel does not forward IPv6 (it has IPv4 pods alone, say) believes any router advertisement on a
    /// link, and link-local sources are anybody's.
    DropRouters {
        /// What it says.
        message: RouterMessage,
    },
    /// What a pod sent comes back: its VNIC's table leads to the router, and the router to the VNIC whose address it was for,
    /// and no pod here has that address (any more). The rule from the pod would send it round again, until its hop limit ends.
    DropReturned {
        /// A VNIC's link.
        link: IfName,
    },
    /// Packets whose destination was translated (a NodePort, a hostPort) may leave by the primary VNIC, whatever it is now.
    AcceptTranslated {
        /// The primary VNIC's link.
        primary: IfName,
    },
    /// What comes in by a VNIC for an address of its subnet was for a pod. No pod has the address now, so that the main table would
    /// have it sent back to the VCN.
    DropUnused {
        /// The VNIC's link.
        link: IfName,
        /// The primary VNIC's link.
        primary: IfName,
        /// A CIDR block of the VNIC's subnet.
        block: IpNetwork,
    },
    /// What this host itself sent likewise. (IPv6 only: the kernel drops IPv4 packets from its own addresses.)
    DropOwnReturned {
        /// A VNIC's link.
        link: IfName,
    },
    /// A packet that comes in by a VNIC must not leave in the primary VNIC's name, whichever program translates its destination: the
    /// metadata service hands out the instance's credentials. Nor are the boot disks his.
    DropMetadataFrom {
        /// A VNIC's link.
        link: IfName,
        /// Of which address.
        family: Family,
    },
    /// A pod sends from its own addresses alone: the way back to where a packet claims to come from must be by the link
    /// that it came by. The fabric sees to it for what leaves the node, but not between this node's pods, nor for one that
    /// takes the address of another on the same VNIC. Asked of the routes to pods, so it is one rule for all of them.
    DropForeignSource {
        /// Of which addresses.
        family: Family,
    },
}

/// What makes entries of the host's tables of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourTraffic {
    /// ARP requests and answers; in a table of their own, for no other sees them.
    Arp,
    /// Whatever is sent from link-local addresses: solicitations, and what the host would answer. A pod can have as many of them
    /// as it likes.
    LinkLocal,
    /// Solicitations from other addresses, which are a pod's own unless pods may spoof.
    Solicitations,
}

/// The packets of each kind that a pod may send. The kernel forgets no entry of its tables within 5 s, so that one pod
/// holds 70 of their 1024 entries.
pub(crate) const NEIGHBOUR_RATE: Rate = Rate { per_second: 10, burst: 20 };

/// What routers alone send (RFC 4861).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterMessage {
    /// Who the default router is, and the prefixes of its link.
    Advertisement,
    /// A better next hop.
    Redirect,
}

impl RouterMessage {
    pub(crate) const ALL: [Self; 2] = [Self::Advertisement, Self::Redirect];

    /// Its ICMPv6 type.
    pub(crate) const fn icmpv6_type(self) -> u8 {
        match self {
            Self::Advertisement => 134,
            Self::Redirect => 137,
        }
    }
}

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl NftRule {
    /// Our rule.
    pub fn new(kind: NftRuleKind) -> Self {
        Self { text: kind.to_string(), kind: Some(kind) }
    }

    /// A rule as found.
    pub const fn found(text: String) -> Self {
        Self { kind: None, text }
    }
}

impl PartialEq for NftRule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NftRule {}

impl fmt::Display for NftRuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MasqueradeMetadata { family, link } => {
                write!(f, "pods to {} by {link}: masquerade", metadata_address(*family))
            }
            Self::AcceptMetadataPort { family, transport, port } => {
                let transport = match transport {
                    Transport::Tcp => "tcp",
                    Transport::Udp => "udp",
                };
                write!(f, "{HOST_LINK_PREFIX}* to {} {transport} {port}: accept", metadata_address(*family))
            }
            Self::RememberWayIn { link, mark } => write!(f, "in by {link} for this host: connection mark {mark}"),
            Self::MarkPackets { mark, answers: true } => {
                write!(f, "answers in connections of mark {mark}: mark {mark}")
            }
            Self::MarkPackets { mark, answers: false } => write!(f, "in connections of mark {mark}: mark {mark}"),
            Self::DropLinkLocal => write!(f, "{HOST_LINK_PREFIX}* to the rest of 169.254.0.0/16: drop"),
            Self::DropMetadataV6 => write!(f, "{HOST_LINK_PREFIX}* to other ports of {METADATA_ADDRESS_V6}: drop"),
            Self::DropLoopback => write!(f, "{HOST_LINK_PREFIX}* to 127.0.0.0/8: drop"),
            Self::LimitNeighbours { of } => {
                let what = match of {
                    NeighbourTraffic::Arp => "ARP",
                    NeighbourTraffic::LinkLocal => "from fe80::/10",
                    NeighbourTraffic::Solicitations => "neighbor solicitations from other addresses",
                };
                let Rate { per_second, .. } = NEIGHBOUR_RATE;
                write!(f, "{HOST_LINK_PREFIX}* {what}, over {per_second} a second per link: drop")
            }
            Self::AcceptTranslated { primary } => {
                write!(f, "forwarded to a translated destination, out by {primary}: accept")
            }
            Self::DropUnused { link, primary, block } => {
                write!(f, "in by {link} to {block}, which no pod here has, out by {primary}: drop")
            }
            Self::DropRouters { message: RouterMessage::Advertisement } => {
                write!(f, "{HOST_LINK_PREFIX}* router advertisements: drop")
            }
            Self::DropRouters { message: RouterMessage::Redirect } => {
                write!(f, "{HOST_LINK_PREFIX}* IPv6 redirects: drop")
            }
            Self::DropReturned { link } => write!(f, "in by {link} from a pod of this node to none of it: drop"),
            Self::DropOwnReturned { link } => write!(f, "in by {link} from this node to elsewhere: drop"),
            Self::DropMetadataFrom { link, family: Family::Ipv4 } => write!(f, "in by {link} to 169.254.0.0/16: drop"),
            Self::DropMetadataFrom { link, family: Family::Ipv6 } => {
                write!(f, "in by {link} to {METADATA_ADDRESS_V6}: drop")
            }
            Self::DropForeignSource { family } => {
                write!(f, "{HOST_LINK_PREFIX}* from {family} addresses that are not its own: drop")
            }
        }
    }
}

/// Where the metadata service, the resolver and the time server are.
pub(crate) const fn metadata_address(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::V4(METADATA_ADDRESS),
        Family::Ipv6 => IpAddr::V6(METADATA_ADDRESS_V6),
    }
}
