//! Which options of which links a node gets: the first entry of its document that selects a link, option by option. Pure: the
//! agent says which links it has.

use std::collections::BTreeMap;

use api::node_policy::{LinkOffloads, LinkSelector, LinkSettings};

use crate::document::{DocumentMode, NodeDocument};
use crate::item::{Item, LinkOption};
use crate::link_keys;
use crate::refusal::Refusal;

/// A link that policies may select: no link of a pod, no bridge, no tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// The name of the link.
    pub name: String,
    /// Its permanent MAC address, in lower case.
    pub mac: Option<String>,
    /// The driver of the link's device.
    pub driver: Option<String>,
    /// Whether it is the link of the primary VNIC.
    pub is_primary: bool,
    /// Whether its device carries RDMA.
    pub has_rdma: bool,
    /// Whether it has an IPv6 address.
    pub has_ipv6: bool,
    /// Whether it has an IPv6 address that is not link-local.
    pub has_routed_ipv6: bool,
    /// Whether the agent sets settings of the link.
    pub is_configured: bool,
    /// Whether a VnicAttachment, or the pod network, sets its MTU.
    pub has_mtu_of_vnic: bool,
    /// Whether it leads to the boot disk (iSCSI).
    pub leads_to_boot_disk: bool,
}

/// An option that a link must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkValue {
    /// The name of the link.
    pub link: String,
    /// The option of the link.
    pub option: LinkOption,
    /// Its value: a number, `true` or `false`, or the value of a kernel setting.
    pub value: String,
    /// The index of the policy.
    pub policy: usize,
}

/// An option that a link does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOption {
    /// The option of the link.
    pub item: Item,
    /// The index of the policy.
    pub policy: usize,
    /// The reason for the refusal.
    pub refusal: Refusal,
}

/// An option with two values of the same priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConflict {
    /// The option of the link.
    pub item: Item,
    /// The index of the younger policy, whose value does not apply.
    pub policy: usize,
    /// The index of the older policy.
    pub rival: usize,
}

/// What the links of a node get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkChoice {
    /// The options that the agent sets.
    pub apply: Vec<LinkValue>,
    /// The options that the agent only compares.
    pub report: Vec<LinkValue>,
    /// Options that are refused.
    pub refused: Vec<RefusedOption>,
    /// Options of two policies.
    pub conflicts: Vec<LinkConflict>,
    /// Selectors without a link, as text, with the index of their policy.
    pub unmatched: Vec<UnmatchedSelector>,
}

/// A selector without a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedSelector {
    /// As [`describe`] writes it.
    pub selector: String,
    /// The index of the policy.
    pub policy: usize,
}

const BOOT_DISK: Refusal = Refusal {
    reason: "the link leads to the boot disk (iSCSI)",
    next_step: "Select other links: a change of this one could stop the node.",
};
const MTU_OF_VNIC: Refusal = Refusal {
    reason: "the link has the MTU of its VNIC",
    next_step: "Set spec.mtu of the VnicAttachment or VnicProfile.",
};
const MTU_OF_IPV6: Refusal =
    Refusal { reason: "the link has IPv6, which needs an MTU of at least 1280", next_step: "Use 1280 or more." };

const IPV6_OFF: Refusal = Refusal {
    reason: "the link's IPv6 addresses and routes would be lost",
    next_step: "Select links without IPv6 addresses, or remove these first.",
};

/// The least MTU of IPv6 (RFC 8200, section 5).
const IPV6_MTU: u16 = 1280;

/// Chooses the options of a document for these links.
pub fn choose(document: &NodeDocument, links: &[LinkFacts]) -> LinkChoice {
    let mut choice = LinkChoice::default();
    let mut chosen: BTreeMap<(Item, DocumentMode), (usize, String)> = BTreeMap::new();
    for entry in &document.links {
        let Some(policy) = document.policy(entry.policy) else { continue };
        let mut selected = links.iter().filter(|link| is_selected(&entry.link.select, link)).peekable();
        if selected.peek().is_none() {
            choice.unmatched.push(UnmatchedSelector { selector: describe(&entry.link.select), policy: entry.policy });
        }
        for link in selected {
            for (option, value) in options(&entry.link) {
                let item = Item::Link { link: link.name.clone(), option };
                if let Some(refusal) = refusal(&item, &value, link) {
                    choice.refused.push(RefusedOption { item, policy: entry.policy, refusal });
                    continue;
                }
                let key = (item, policy.mode);
                match chosen.get(&key) {
                    None => drop(chosen.insert(key, (entry.policy, value))),
                    Some((rival, other)) if *other != value && *rival != entry.policy => {
                        let is_equal = document.policy(*rival).is_some_and(|it| it.priority == policy.priority);
                        let conflict = LinkConflict { item: key.0, policy: entry.policy, rival: *rival };
                        choice.conflicts.extend(is_equal.then_some(conflict));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    for ((item, mode), (policy, value)) in chosen {
        let Item::Link { link, option } = item else { continue };
        let value = LinkValue { link, option, value, policy };
        match mode {
            DocumentMode::Apply => choice.apply.push(value),
            DocumentMode::Report => choice.report.push(value),
            DocumentMode::Keep => {}
        }
    }
    choice
}

/// A selector as text: `primary`, `driver:mlx5_core`.
pub fn describe(select: &LinkSelector) -> String {
    let text = |what: &str, value: &Option<String>| value.as_ref().map(|value| format!("{what}:{value}"));
    let named =
        text("driver", &select.driver).or_else(|| text("name", &select.name)).or_else(|| text("mac", &select.mac));
    match named {
        Some(named) => named,
        None if select.rdma => "rdma".to_owned(),
        None => "primary".to_owned(),
    }
}

fn is_selected(select: &LinkSelector, link: &LinkFacts) -> bool {
    let LinkSelector { primary, rdma, driver, name, mac } = select;
    let is_named = |pattern: &String| match pattern.strip_suffix('*') {
        Some(start) => link.name.starts_with(start),
        None => link.name == *pattern,
    };
    // Exactly one is given: the definition demands it.
    *primary && link.is_primary
        || *rdma && link.has_rdma
        || driver.is_some() && *driver == link.driver
        || name.as_ref().is_some_and(is_named)
        || mac.is_some() && *mac == link.mac
}

/// The options that an entry sets, with their values as text.
pub fn options(settings: &LinkSettings) -> Vec<(LinkOption, String)> {
    let LinkSettings { select: _, mtu, tx_queue_length, ring, channels, offloads, sysctls } = settings;
    let (ring, channels) = (ring.unwrap_or_default(), channels.unwrap_or_default());
    let numbers = [
        (LinkOption::Mtu, mtu.map(u32::from)),
        (LinkOption::TxQueueLength, *tx_queue_length),
        (LinkOption::RingRx, ring.rx),
        (LinkOption::RingTx, ring.tx),
        (LinkOption::ChannelsRx, channels.rx),
        (LinkOption::ChannelsTx, channels.tx),
        (LinkOption::ChannelsCombined, channels.combined),
    ];
    let numbers = numbers.into_iter().filter_map(|(option, value)| Some((option, value?.to_string())));
    let flags = flags(offloads.unwrap_or_default());
    let flags = flags.into_iter().filter_map(|(name, on)| Some((LinkOption::Offload(name), on?.to_string())));
    let sysctls = sysctls.iter().map(|(key, value)| (LinkOption::Sysctl(key.clone()), value.clone()));
    numbers.chain(flags).chain(sysctls).collect()
}

/// The offloads by name, as in [`crate::item::OFFLOADS`].
const fn flags(offloads: LinkOffloads) -> [(&'static str, Option<bool>); 8] {
    let LinkOffloads { rx_checksum, tx_checksum, tso, gso, gro, lro, rx_hash, ntuple } = offloads;
    [
        ("rxChecksum", rx_checksum),
        ("txChecksum", tx_checksum),
        ("tso", tso),
        ("gso", gso),
        ("gro", gro),
        ("lro", lro),
        ("rxHash", rx_hash),
        ("ntuple", ntuple),
    ]
}

fn refusal(item: &Item, value: &str, link: &LinkFacts) -> Option<Refusal> {
    let Item::Link { option, .. } = item else { return None };
    if link.leads_to_boot_disk {
        return Some(BOOT_DISK);
    }
    match option {
        LinkOption::Mtu if link.has_mtu_of_vnic => Some(MTU_OF_VNIC),
        LinkOption::Mtu if link.has_ipv6 && value.parse().is_ok_and(|mtu: u16| mtu < IPV6_MTU) => Some(MTU_OF_IPV6),
        LinkOption::Sysctl(key) if key == "ipv6.disable_ipv6" && value == "1" && link.has_routed_ipv6 => Some(IPV6_OFF),
        LinkOption::Sysctl(key) => link_keys::check(key, value, link.is_configured).err(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{DesiredLink, DocumentPolicy};
    use crate::item::OFFLOADS;

    fn link(name: &str, change: impl FnOnce(&mut LinkFacts)) -> LinkFacts {
        let mut link = LinkFacts { name: name.to_owned(), ..LinkFacts::default() };
        change(&mut link);
        link
    }

    /// A document of policies with priorities and modes, and entries of them.
    fn document(policies: &[(u16, DocumentMode)], entries: &[(usize, &str)]) -> NodeDocument {
        let policy = |(priority, mode): &(u16, DocumentMode)| DocumentPolicy {
            priority: *priority,
            mode: *mode,
            ..DocumentPolicy::default()
        };
        let entry = |(policy, text): &(usize, &str)| DesiredLink {
            link: serde_yaml_ng::from_str(text).unwrap(),
            policy: *policy,
        };
        NodeDocument {
            policies: policies.iter().map(policy).collect(),
            links: entries.iter().map(entry).collect(),
            ..NodeDocument::default()
        }
    }

    fn shown(values: &[LinkValue]) -> Vec<String> {
        values.iter().map(|it| format!("{}/{}={} of {}", it.link, it.option, it.value, it.policy)).collect()
    }

    #[test]
    fn first_entry_that_selects_a_link_applies_by_option() {
        let links = [
            link("ens3", |it| it.is_primary = true),
            link("ens5", |it| (it.driver, it.has_rdma) = (Some("mlx5_core".to_owned()), true)),
            link("rdma0", |it| it.mac = Some("02:00:17:00:00:01".to_owned())),
        ];
        let document = document(
            &[(200, DocumentMode::Apply), (100, DocumentMode::Apply), (100, DocumentMode::Report)],
            &[
                (0, "{select: {driver: mlx5_core}, ring: {rx: 8192}}"),
                (1, "{select: {name: ens*}, mtu: 9000, ring: {rx: 4096, tx: 4096}, offloads: {lro: false}}"),
                (1, "{select: {rdma: true}, mtu: 4200}"),
                (2, "{select: {mac: '02:00:17:00:00:01'}, txQueueLength: 10000}"),
                (2, "{select: {primary: true}, mtu: 1500}"),
                (2, "{select: {name: eth0}, mtu: 1500}"),
            ],
        );
        let choice = choose(&document, &links);
        assert_eq!(
            shown(&choice.apply),
            [
                "ens3/mtu=9000 of 1",
                "ens3/ring.rx=4096 of 1",
                "ens3/ring.tx=4096 of 1",
                "ens3/offloads.lro=false of 1",
                "ens5/mtu=9000 of 1",
                "ens5/ring.rx=8192 of 0",
                "ens5/ring.tx=4096 of 1",
                "ens5/offloads.lro=false of 1",
            ]
        );
        assert_eq!(shown(&choice.report), ["ens3/mtu=1500 of 2", "rdma0/txQueueLength=10000 of 2"]);
        assert_eq!(choice.unmatched, [UnmatchedSelector { selector: "name:eth0".to_owned(), policy: 2 }]);
        assert_eq!((choice.conflicts, choice.refused), (Vec::new(), Vec::new()));
    }

    #[test]
    fn younger_policy_of_the_same_priority_has_the_conflict() {
        let policies = [(100, DocumentMode::Apply), (100, DocumentMode::Apply), (50, DocumentMode::Apply)];
        let entries = [
            (0, "{select: {name: ens3}, mtu: 9000}"),
            (1, "{select: {name: ens3}, mtu: 1500}"),
            (2, "{select: {name: ens3}, mtu: 1400}"),
        ];
        let choice = choose(&document(&policies, &entries), &[link("ens3", |_| {})]);
        assert_eq!(shown(&choice.apply), ["ens3/mtu=9000 of 0"]);
        let item = Item::Link { link: "ens3".to_owned(), option: LinkOption::Mtu };
        assert_eq!(choice.conflicts, [LinkConflict { item, policy: 1, rival: 0 }]);
    }

    #[test]
    fn option_that_could_cut_the_node_off_is_refused() {
        let refused = |change: fn(&mut LinkFacts), entry: &str| {
            let document =
                document(&[(100, DocumentMode::Apply)], &[(0, &format!("{{select: {{name: a}}, {entry}}}"))]);
            let choice = choose(&document, &[link("a", change)]);
            assert_eq!(choice.apply.len() + choice.refused.len(), 1, "{entry}");
            choice.refused.first().map(|it| it.refusal.reason)
        };
        let plain: fn(&mut LinkFacts) = |_| {};
        for (change, entry, part) in [
            (plain, "mtu: 600", None),
            (|it| it.has_ipv6 = true, "mtu: 1279", Some("has IPv6")),
            (|it| it.has_ipv6 = true, "mtu: 1280", None),
            (|it| it.has_mtu_of_vnic = true, "mtu: 9000", Some("MTU of its VNIC")),
            (|it| it.has_mtu_of_vnic = true, "txQueueLength: 5", None),
            (|it| it.leads_to_boot_disk = true, "txQueueLength: 5", Some("boot disk")),
            (|it| it.leads_to_boot_disk = true, "sysctls: {ipv4.rp_filter: '2'}", Some("boot disk")),
            (|it| it.is_configured = true, "sysctls: {ipv4.rp_filter: '1'}", Some("the agent sets it")),
            (plain, "sysctls: {ipv4.rp_filter: '1'}", None),
            (plain, "sysctls: {ipv4.no_such_key: '1'}", Some("table of keys")),
            (|it| it.has_routed_ipv6 = true, "sysctls: {ipv6.disable_ipv6: '1'}", Some(IPV6_OFF.reason)),
            (|it| it.has_routed_ipv6 = true, "sysctls: {ipv6.disable_ipv6: '0'}", None),
            (plain, "sysctls: {ipv6.disable_ipv6: '1'}", None),
        ] as [(fn(&mut LinkFacts), &str, Option<&str>); 13]
        {
            let reason = refused(change, entry);
            assert!(
                reason.zip(part).map_or(reason.is_none() && part.is_none(), |(reason, part)| reason.contains(part)),
                "{entry}: {reason:?}"
            );
        }
    }

    #[test]
    fn offloads_are_named_as_items() {
        assert_eq!(flags(LinkOffloads::default()).map(|(name, _)| name), OFFLOADS);
    }
}
