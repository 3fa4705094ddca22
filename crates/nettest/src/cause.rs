//! The causes that a verdict names: the rows of the fault matrix, and causes outside the network.

/// Whether a cause is in the network or on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The network between the hosts.
    Network,
    /// The host of the source.
    SourceHost,
    /// The host of the target.
    TargetHost,
    /// The service that is the target.
    Service,
    /// The evidence does not show it.
    Unknown,
}

vcn::words!(
    Place: Network = "the network",
    SourceHost = "the source's host",
    TargetHost = "the target's host",
    Service = "the service",
    Unknown = "not known",
);

/// One row each: the cause, where it is unless the evidence says which host, and what to change.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident, $place:ident, $fix:literal;)*) => {
        /// The causes that a verdict can name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])* $cause,)*
        }

        vcn::words!(Cause: $($cause),*);

        impl Cause {
            /// Where it is, unless the evidence says which host.
            pub const fn place(self) -> Place {
                match self { $(Self::$cause => Place::$place,)* }
            }

            /// What an operator changes to end it.
            pub const fn fix(self) -> &'static str {
                match self { $(Self::$cause => $fix,)* }
            }
        }
    };
}

causes! {
    /// A security list of a subnet.
    SecurityList, Network,
    "Allow the port in the security lists of both subnets, in the direction of the probe.";
    /// A network security group of a VNIC.
    SecurityGroup, Network,
    "Allow the port in the VNICs' network security groups, or give the source the group that the rule names.";
    /// The route table of a subnet.
    RouteTable, Network,
    "Add a rule for the target's network to the route table of the source's subnet.";
    /// A gateway between networks: a DRG, a peering, or its return route.
    Gateway, Network,
    "Compare the route tables and attachments of the DRG or peering on both sides; one-way loss is a missing return route.";
    /// Packets of this size do not pass.
    PathMtu, Network,
    "Set the MTU of the link to what the path carries, or allow ICMP type 3 code 4 on the path so that hosts learn it.";
    /// The host sends packets of the address by another link, or has no route.
    HostRoute, SourceHost,
    "Run `oke-node-agent why-not-ready` in the agent's pod of the node: the rule or table of the VNIC is missing or another rule precedes it.";
    /// The host's reverse-path filter.
    ReversePathFilter, SourceHost,
    "Set net.ipv4.conf.LINK.rp_filter to 2 (loose) on the node, in /etc/sysctl.d.";
    /// The host's neighbour table is full.
    NeighbourTable, SourceHost,
    "Raise net.ipv4.neigh.default.gc_thresh3 (IPv6: net.ipv6) above the number of hosts in the node's subnets.";
    /// The host's table of connections is full.
    HostConntrack, SourceHost,
    "Raise net.netfilter.nf_conntrack_max on the node, or find the pod with the most connections.";
    /// Two packets raced in the host's table of connections.
    ConntrackRace, SourceHost,
    "Use NodeLocal DNSCache, or let resolvers send A and AAAA queries one after the other (single-request).";
    /// The VNIC's table of connections is full.
    VnicConntrack, Network,
    "Check the VNIC's metric VnicConntrackIsFull; spread connections over more VNICs or OCPUs.";
    /// The answer leaves by another link than the request came by.
    AsymmetricRoute, TargetHost,
    "Let answers leave by the VNIC of their address: run `oke-node-agent why-not-ready` in the agent's pod of the target's node.";
    /// The source's host cannot resolve the target's name.
    NameResolution, Service,
    "Correct the name, or test the node's resolvers (/etc/resolv.conf): `kubectl oke-node nettest NODE dns`.";
    /// The resolver answers fewer queries per second.
    DnsRate, Service,
    "Cache names on the node (NodeLocal DNSCache), and end names with a dot to avoid search domains.";
    /// The metadata service answers fewer requests per second.
    MetadataThrottled, Service,
    "Find what polls the metadata service on the node, and let it cache or back off.";
    /// A firewall of the host.
    HostFirewall, SourceHost,
    "Allow the port in the host's firewall (firewalld, iptables or nft).";
    /// No process listens on the port.
    PortClosed, TargetHost,
    "Start what should listen on the port, or correct the port: packets pass in both directions.";
    /// The target's host does not run, or its VNIC is detached.
    TargetDown, TargetHost,
    "Check the target's instance and VNIC in OCI.";
    /// The service answers with an error.
    ServiceError, Service,
    "Read the log of the service that answered: packets pass in both directions.";
    /// The service does not answer, or packets do not reach it: no security rule and no route table applies to it.
    ServiceSilent, Service,
    "Check in OCI whether the service is impaired in the region, and the node's firewall: `nft list ruleset`. Test it from another node, too.";
    /// The path carries less data per second than was sent.
    Bandwidth, Unknown,
    "Compare with the bandwidth of both shapes, which VNICs and block volumes share; else look for drops and a lack of CPU on both hosts.";
    /// The same probe passed a moment later.
    Intermittent, Unknown,
    "Run the test with an interval, and compare the failed runs.";
}

impl Cause {
    /// What shows that it is this one, or not.
    pub const fn separator(self) -> &'static str {
        match self {
            Self::SecurityList => "Check both subnets' security lists",
            Self::SecurityGroup => "Check both VNICs' security groups",
            Self::RouteTable => "Check both subnets' route tables",
            Self::Gateway => "Check the DRG's or peering's routes",
            Self::VnicConntrack => "Check the VNIC's metric VnicConntrackIsFull",
            Self::HostFirewall => "Check the target's firewall: `nft list ruleset`",
            Self::TargetDown => "Check the instance in OCI",
            Self::ServiceSilent => "Test the service from another node",
            Self::HostRoute | Self::NeighbourTable | Self::HostConntrack | Self::ReversePathFilter => {
                "Run the same test between other nodes"
            }
            Self::PathMtu => "Test with packets of another size: `--mtu`, or without it",
            Self::Bandwidth => "Check the VNICs' metrics VnicIngressDropsThrottle and VnicEgressDropsThrottle",
            _ => "Run the same test again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_begins_with_a_verb_and_fits() {
        const VERBS: [&str; 17] = [
            "Add", "Allow", "Cache", "Check", "Compare", "Correct", "Find", "Let", "Raise", "Read", "Run", "Set",
            "Start", "Test", "Use", "Wait", "Restart",
        ];
        for cause in Cause::ALL {
            for step in [cause.fix(), cause.separator()] {
                let verb = step.split(' ').next().unwrap_or_default();
                assert!(VERBS.contains(&verb) && step.len() <= crate::verdict::FIX_MAX, "{step}");
            }
        }
    }
}
