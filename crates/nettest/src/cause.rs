//! The causes that a verdict names: the rows of the fault matrix, and what is no fault of the network.

use crate::verdict::Place;

/// A cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A security list of a subnet.
    SecurityList,
    /// A network security group of a VNIC.
    SecurityGroup,
    /// The route table of a subnet.
    RouteTable,
    /// A gateway between networks: a DRG, a peering, or its return route.
    Gateway,
    /// Packets of this size do not pass.
    PathMtu,
    /// The VNIC's source/destination check.
    SourceDestCheck,
    /// The host sends packets of the address by another link, or has no route.
    HostRoute,
    /// The host's reverse-path filter.
    ReversePathFilter,
    /// The host's neighbour table is full.
    NeighbourTable,
    /// The host's table of connections is full.
    HostConntrack,
    /// Two packets raced in the host's table of connections.
    ConntrackRace,
    /// The VNIC's table of connections is full.
    VnicConntrack,
    /// The answer leaves by another link than the request came by.
    AsymmetricRoute,
    /// The source's host cannot resolve the target's name.
    NameResolution,
    /// The resolver answers fewer queries per second.
    DnsRate,
    /// The metadata service answers fewer requests per second.
    MetadataThrottled,
    /// A firewall of the host.
    HostFirewall,
    /// No process listens on the port.
    PortClosed,
    /// The target's host does not run, or its VNIC is detached.
    TargetDown,
    /// The service answers with an error.
    ServiceError,
    /// The path carries less data per second than was sent.
    Bandwidth,
    /// The same probe passed a moment later.
    Intermittent,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::SecurityList,
        Self::SecurityGroup,
        Self::RouteTable,
        Self::Gateway,
        Self::PathMtu,
        Self::SourceDestCheck,
        Self::HostRoute,
        Self::ReversePathFilter,
        Self::NeighbourTable,
        Self::HostConntrack,
        Self::ConntrackRace,
        Self::VnicConntrack,
        Self::AsymmetricRoute,
        Self::NameResolution,
        Self::DnsRate,
        Self::MetadataThrottled,
        Self::HostFirewall,
        Self::PortClosed,
        Self::TargetDown,
        Self::ServiceError,
        Self::Bandwidth,
        Self::Intermittent,
    ];

    /// Its word in verdicts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SecurityList => "SecurityList",
            Self::SecurityGroup => "SecurityGroup",
            Self::RouteTable => "RouteTable",
            Self::Gateway => "Gateway",
            Self::PathMtu => "PathMtu",
            Self::SourceDestCheck => "SourceDestCheck",
            Self::HostRoute => "HostRoute",
            Self::ReversePathFilter => "ReversePathFilter",
            Self::NeighbourTable => "NeighbourTable",
            Self::HostConntrack => "HostConntrack",
            Self::ConntrackRace => "ConntrackRace",
            Self::VnicConntrack => "VnicConntrack",
            Self::AsymmetricRoute => "AsymmetricRoute",
            Self::NameResolution => "NameResolution",
            Self::DnsRate => "DnsRate",
            Self::MetadataThrottled => "MetadataThrottled",
            Self::HostFirewall => "HostFirewall",
            Self::PortClosed => "PortClosed",
            Self::TargetDown => "TargetDown",
            Self::ServiceError => "ServiceError",
            Self::Bandwidth => "Bandwidth",
            Self::Intermittent => "Intermittent",
        }
    }

    /// Where it is, unless the evidence says which host.
    #[must_use]
    pub const fn place(self) -> Place {
        match self {
            Self::SecurityList
            | Self::SecurityGroup
            | Self::RouteTable
            | Self::Gateway
            | Self::PathMtu
            | Self::SourceDestCheck
            | Self::VnicConntrack => Place::Network,
            Self::NameResolution | Self::DnsRate | Self::MetadataThrottled | Self::ServiceError => Place::Service,
            Self::AsymmetricRoute | Self::PortClosed | Self::TargetDown => Place::TargetHost,
            Self::HostRoute
            | Self::ReversePathFilter
            | Self::NeighbourTable
            | Self::HostConntrack
            | Self::ConntrackRace
            | Self::HostFirewall => Place::SourceHost,
            Self::Bandwidth | Self::Intermittent => Place::Unknown,
        }
    }

    /// What to change.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::SecurityList => {
                "Allow the port in the security lists of both subnets, in the direction of the probe."
            }
            Self::SecurityGroup => {
                "Allow the port in the VNICs' network security groups, or give the source the group that the rule names."
            }
            Self::RouteTable => "Add a rule for the target's network to the route table of the source's subnet.",
            Self::Gateway => {
                "Compare the route tables and attachments of the DRG or peering on both sides; one-way loss is a missing return route."
            }
            Self::PathMtu => {
                "Set the MTU of the link to what the path carries, or allow ICMP type 3 code 4 on the path so that hosts learn it."
            }
            Self::SourceDestCheck => "Set skipSourceDestCheck on the VNIC that forwards, or give it the address.",
            Self::HostRoute => {
                "Run `oke-node-agent why-not-ready` on the node: the rule or table of the VNIC is missing or another rule precedes it."
            }
            Self::ReversePathFilter => "Set net.ipv4.conf.LINK.rp_filter to 2 (loose) on the node, in /etc/sysctl.d.",
            Self::NeighbourTable => {
                "Raise net.ipv4.neigh.default.gc_thresh3 (IPv6: net.ipv6) above the number of hosts in the node's subnets."
            }
            Self::HostConntrack => {
                "Raise net.netfilter.nf_conntrack_max on the node, or find the pod with the most connections."
            }
            Self::ConntrackRace => {
                "Use NodeLocal DNSCache, or let resolvers send A and AAAA queries one after the other (single-request)."
            }
            Self::VnicConntrack => {
                "Check the VNIC's metric VnicConntrackIsFull; spread connections over more VNICs or OCPUs."
            }
            Self::AsymmetricRoute => {
                "Let answers leave by the VNIC of their address: run `oke-node-agent why-not-ready` on the target's node."
            }
            Self::NameResolution => {
                "Correct the name, or test the node's resolvers (/etc/resolv.conf): `kubectl oke-node nettest NODE dns`."
            }
            Self::DnsRate => {
                "Cache names on the node (NodeLocal DNSCache), and end names with a dot to avoid search domains."
            }
            Self::MetadataThrottled => {
                "Find what polls the metadata service on the node, and let it cache or back off."
            }
            Self::HostFirewall => "Allow the port in the host's firewall (firewalld, iptables or nft).",
            Self::PortClosed => {
                "Start what should listen on the port, or correct the port: packets pass in both directions."
            }
            Self::TargetDown => "Check the target's instance and VNIC in OCI.",
            Self::ServiceError => "Packets pass: read the log of the service that answered.",
            Self::Bandwidth => {
                "Compare with the bandwidth of both shapes, which VNICs and block volumes share; else look for drops and a lack of CPU on both hosts."
            }
            Self::Intermittent => "Run the test with an interval, and compare the failed runs.",
        }
    }

    /// What would show that it is this one, or not.
    #[must_use]
    pub const fn separator(self) -> &'static str {
        match self {
            Self::SecurityList => "a source in another subnet",
            Self::SecurityGroup => "a source of the same subnet with other security groups",
            Self::RouteTable => "the route tables of both subnets in OCI",
            Self::Gateway => "the route tables and attachments of the DRG or peering in OCI",
            Self::VnicConntrack => "the VNIC's metric VnicConntrackIsFull",
            Self::HostFirewall => "an agent on the target's host",
            Self::TargetDown => "the instance's state in OCI",
            Self::PathMtu => "packets of another size",
            Self::Bandwidth => "the VNICs' metrics VnicIngressDropsThrottle and VnicEgressDropsThrottle",
            _ => "the same probe again",
        }
    }
}
