//! Which events of the kernel are worth a look: those about what the agent keeps. Pods' links, routes and rules come and
//! go by the hundred and are the plugins'; of them only what is taken away is a sign that something may be wrong.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;

use netlink::{Change, Event, Groups, Link, Monitor, Socket, nft};
use resident::readable::Readable;
use vcn::{Family, HOST_LINK_PREFIX, NFT_TABLE, PODS_TABLE, PROTOCOL, RulePriorities, TABLE_BASE};

use crate::triggers::drift_hints::{DriftHints, Sizes};

/// How a VCN's Ethernet addresses begin.
const VCN_MACS: [u8; 3] = [0x02, 0x00, 0x17];

/// What the events were about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concern {
    /// The host's own network is concerned. If not, only [`Events::signs`] are there to be looked into.
    pub host: bool,
    /// Devices came, went or changed: a VNIC may have been plugged or unplugged.
    pub links: bool,
}

/// The kernel's events, for one task to wait for.
#[derive(Debug)]
pub struct Events {
    monitor: Monitor,
    readable: Readable,
    signs: DriftHints,
    sizes: Sizes,
    carriers: Carriers,
}

/// Links that may carry a VNIC, by their indices: what is told of an address does not name its link.
#[derive(Clone, Debug, Default)]
struct Carriers(HashSet<u32>);

/// Who touches one of our nft tables is heard: a firewall that starts flushes everybody's.
#[derive(Debug)]
pub struct Nft {
    /// Nothing where the kernel has no nf_tables.
    watch: Option<(nft::Watch, Readable)>,
}

impl Events {
    /// Listens in the calling thread's network namespace.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn open() -> io::Result<Self> {
        let monitor = Monitor::open(Groups::CONFIGURATION).map_err(io::Error::other)?;
        // After the subscription, so that no change is missed. Without the list, the timer finds what changed.
        let links = Socket::open().and_then(|mut socket| socket.links()).unwrap_or_default();
        Ok(Self {
            readable: Readable::new(monitor.as_fd())?,
            monitor,
            signs: DriftHints::default(),
            sizes: Sizes::of(&links),
            carriers: Carriers::of(&links),
        })
    }

    /// Waits for something worth a look. May be dropped while it waits; no event is lost for good, because whoever looks
    /// sees all of them.
    ///
    /// # Errors
    /// When the socket is broken: open another.
    pub async fn concerning(&mut self) -> io::Result<Concern> {
        let Self { monitor, signs, sizes, carriers, readable } = self;
        readable.wait(|| read(monitor, (signs, sizes, carriers))).await
    }

    /// Takes in what was told since, for a pass that is about to look at everything. Says whether links were concerned.
    ///
    /// # Errors
    /// When a socket is broken: open another.
    pub fn gathered(&mut self) -> io::Result<bool> {
        let concern = read(&mut self.monitor, (&mut self.signs, &mut self.sizes, &mut self.carriers))?;
        Ok(concern.is_some_and(|concern| concern.links))
    }

    /// Whether there are signs that nobody has taken yet. The same sign again is then no news.
    #[must_use]
    pub fn has_signs(&self) -> bool {
        !self.signs.is_empty()
    }

    /// The signs so far that something of running pods was taken away; they are told once.
    pub fn signs(&mut self) -> DriftHints {
        std::mem::take(&mut self.signs)
    }
}

/// The most reads for one answer: whoever floods the kernel with changes does not keep the agent from everything else.
const READS: usize = 16;

/// Reads all that there is to read; nothing where none of it is worth a look.
fn read(
    monitor: &mut Monitor,
    (signs, sizes, carriers): (&mut DriftHints, &mut Sizes, &mut Carriers),
) -> io::Result<Option<Concern>> {
    let (mut host, mut links, mut suspicious) = (false, false, false);
    for _ in 0..READS {
        let events = monitor.drain().map_err(io::Error::other)?;
        if events.is_empty() {
            return Ok((host || suspicious).then_some(Concern { host, links }));
        }
        for event in &events {
            suspicious |= signs.note(event);
            suspicious |= sizes.changed(event).is_some_and(|link| signs.suspect(link));
            if concerns_host(event) || carriers.lost_voice(event) {
                host = true;
                links |= match event {
                    Event::Link(_, link) => may_be_vnic(link),
                    event => matches!(event, Event::Overrun),
                };
            }
        }
    }
    // There is more: a look at everything is as good as reading it.
    Ok(Some(Concern { host: true, links: true }))
}

impl Nft {
    /// Listens in the calling thread's network namespace.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn open() -> io::Result<Self> {
        match nft::Watch::open(NFT_TABLE) {
            Ok(watch) => {
                let readable = Readable::new(watch.as_fd())?;
                Ok(Self { watch: Some((watch, readable)) })
            }
            Err(error) if error.is_unsupported() => Ok(Self { watch: None }),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Waits until our table was touched; for ever where there can be none. May be dropped while it waits.
    ///
    /// # Errors
    /// When the socket is broken: open another.
    pub async fn touched(&mut self) -> io::Result<()> {
        let Some((watch, readable)) = &mut self.watch else { return std::future::pending().await };
        while !readable.wait(|| watch.drain().map_err(io::Error::other)).await? {}
        Ok(())
    }

    /// Takes in what was told since, for a pass that is about to look. What is broken is found the next time.
    pub fn gathered(&mut self) {
        if let Some((watch, _)) = &mut self.watch {
            let _ = watch.drain();
        }
    }
}

fn concerns_host(event: &Event) -> bool {
    match event {
        Event::Link(_, link) => !link.name.as_str().starts_with(HOST_LINK_PREFIX),
        // Every link of a pod brings one. What matters of them is that a VNIC loses its own.
        Event::Address(_, address) => {
            Family::of(address.address.ip()) == Family::Ipv4 || !is_link_local(address.address.ip())
        }
        // Of the routes in the pods' table only those that can be nobody's pod.
        Event::Route(_, route) if route.table == PODS_TABLE => {
            route.protocol != PROTOCOL && route.destination.prefix() < route.family().host_prefix()
        }
        Event::Route(_, route) => route.table.0 >= TABLE_BASE,
        Event::Rule(_, rule) => rule.protocol == PROTOCOL && rule.priority != RulePriorities::FROM_POD,
        Event::Neighbour(..) => false,
        Event::Setting(_) | Event::Overrun => true,
    }
}

/// The most links that are kept; where there are more, the timer finds what the others lost.
const CARRIERS: usize = 1024;

impl Carriers {
    fn of(links: &[Link]) -> Self {
        Self(links.iter().filter(|link| Self::may_be(link)).map(|link| link.index).take(CARRIERS).collect())
    }

    fn may_be(link: &Link) -> bool {
        may_be_vnic(link) || link.vlan.is_some()
    }

    /// Whether by an event a VNIC may have lost what its router is asked for from.
    fn lost_voice(&mut self, event: &Event) -> bool {
        match event {
            Event::Address(Change::Gone, address) => {
                is_link_local(address.address.ip()) && self.0.contains(&address.index)
            }
            Event::Link(Change::Gone, link) => {
                self.0.remove(&link.index);
                false
            }
            Event::Link(Change::Present, link) if Self::may_be(link) && self.0.len() < CARRIERS => {
                self.0.insert(link.index);
                false
            }
            _ => false,
        }
    }
}

/// Whether a link may be a VNIC's device: of the kernel's kinds of links without hardware none is. In a sandbox a VNIC's
/// device is a veth; pods of other networks have such by the hundred, and under addresses that are not a VCN's.
fn may_be_vnic(link: &Link) -> bool {
    match link.kind.as_deref() {
        None => true,
        Some("veth") => link.mac.is_some_and(|mac| mac.0.starts_with(&VCN_MACS)),
        Some(_) => false,
    }
}

fn is_link_local(address: std::net::IpAddr) -> bool {
    matches!(address, std::net::IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use netlink::{Address, Route, Rule, Setting, SettingKey, SettingOf};
    use vcn::TableId;

    use super::*;
    use crate::fixture::link;

    fn route(table: u32) -> Event {
        Event::Route(Change::Gone, Route::new("10.0.0.0/8".parse().unwrap(), 3, TableId(table), PROTOCOL))
    }

    fn rule(priority: vcn::Priority, protocol: u8) -> Event {
        Event::Rule(Change::Gone, Rule::new(Family::Ipv4, priority, TableId(1000), protocol))
    }

    fn address(address: &str) -> Event {
        Event::Address(Change::Present, Address::new(3, address.parse().unwrap()))
    }

    #[test]
    fn what_the_agent_keeps_is_worth_a_look() {
        let setting = Setting { family: Family::Ipv4, of: SettingOf::All, key: SettingKey::Forwarding, value: 0 };
        for event in [
            Event::Link(Change::Present, link("ens5", 5)),
            address("10.0.33.7/32"),
            address("2603:c020::7/128"),
            route(1000),
            // Of somebody who uses the pods' table.
            Event::Route(Change::Present, Route::new("0.0.0.0/0".parse().unwrap(), 3, PODS_TABLE, 4)),
            rule(RulePriorities::FROM_VNIC, PROTOCOL),
            rule(RulePriorities::METADATA, PROTOCOL),
            rule(RulePriorities::TO_PODS, PROTOCOL),
            Event::Setting(setting),
            Event::Overrun,
        ] {
            assert!(concerns_host(&event), "{event:?}");
        }
    }

    #[test]
    fn a_link_local_address_that_goes_is_worth_a_look_where_it_may_have_been_a_vnics() {
        let vlan = Link { kind: Some("vlan".into()), vlan: vcn::VlanTag::new(7).ok(), ..link("nic0.7", 6) };
        let pods = Link { kind: Some("veth".into()), mac: Some(vcn::MacAddr([2; 6])), ..link("vcn0123456789ab", 7) };
        let gone = |index, text: &str| Event::Address(Change::Gone, Address::new(index, text.parse().unwrap()));
        let mut carriers = Carriers::of(&[link("ens5", 5), pods.clone()]);
        carriers.lost_voice(&Event::Link(Change::Present, vlan.clone()));
        carriers.lost_voice(&Event::Link(Change::Present, pods));
        let lost = [5, 6, 7].map(|index| carriers.lost_voice(&gone(index, "fe80::200:17ff:fe00:5/64")));
        assert_eq!(lost, [true, true, false]);
        let came = Event::Address(Change::Present, Address::new(5, "fe80::7/64".parse().unwrap()));
        assert!(!carriers.lost_voice(&came) && !concerns_host(&came));
        carriers.lost_voice(&Event::Link(Change::Gone, vlan));
        assert!(!carriers.lost_voice(&gone(6, "fe80::7/64")), "another link of that index");
    }

    #[test]
    fn only_a_device_may_be_a_vnic() {
        let of = |kind: &str, last| Link { kind: Some(kind.into()), ..link("ens5", last) };
        let pods = Link { mac: Some(vcn::MacAddr([0x0a, 0x58, 0x17, 0, 0, 5])), ..of("veth", 5) };
        let links =
            [link("ens5", 5), of("veth", 5), pods, of("bridge", 5), of("vxlan", 5), of("vlan", 5), of("tun", 5)];
        assert_eq!(links.map(|link| may_be_vnic(&link)), [true, true, false, false, false, false, false]);
    }

    #[test]
    fn what_pods_bring_with_them_is_not() {
        for event in [
            Event::Link(Change::Present, link("vcn0123456789ab", 5)),
            address("fe80::1/64"),
            route(254),
            Event::Route(Change::Present, Route::new("10.0.33.9/32".parse().unwrap(), 3, PODS_TABLE, PROTOCOL)),
            rule(RulePriorities::FROM_POD, PROTOCOL),
            rule(RulePriorities::FROM_VNIC, 0),
        ] {
            assert!(!concerns_host(&event), "{event:?}");
        }
    }
}
