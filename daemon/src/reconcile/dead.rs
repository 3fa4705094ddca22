//! The stage that ends attachments whose pods have gone without a DEL: the runtime lost them, or the machine's runtime was
//! killed for good. A leak of addresses is what users feel of it.
//!
//! ```text
//!   on record ─▶ no link with its alias ─▶ a while later: still none, the same record ─▶ DEL's work ─▶ addresses cool down
//! ```
//!
//! Only the link tells: namespace paths are hints, because what is mounted where goes stale. What lives is never touched.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datapath::host::HostVnic;
use datapath::pod::LinkEnds;
use datapath::{Object, Places, dismantle, plan, pod};
use ipam::{Allocation, BootId, BootTime, Pools, Routed, Store};
use netlink::Link;
use resident::logging::chain;

use super::{Findings, pods};
use crate::decide::usage::holder;
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::Changed;

/// The stage and what it remembers from pass to pass.
#[derive(Debug)]
pub(super) struct Dead {
    store: Store,
    state_dir: PathBuf,
    boot: BootId,
    sysctl_root: PathBuf,
    /// The least time between the two looks that find a link absent.
    apart: Duration,
    /// Attachments without link, by their keys, and since when.
    absent: HashMap<String, Absent>,
}

#[derive(Debug)]
struct Absent {
    since: Instant,
    allocation: Allocation,
    /// What resisted when it was to be ended.
    resists: Option<String>,
}

/// What came of ending an attachment.
enum Ended {
    /// These addresses are free; none where it is not dead, or not any more.
    Freed(Vec<IpAddr>),
    /// A verb is at it at this moment.
    Busy,
}

impl Dead {
    pub(super) fn new(state_dir: &Path, sysctl_root: &Path, boot: BootId, apart: Duration) -> Self {
        let (store, sysctl_root) = (Store::new(state_dir, boot.clone()), sysctl_root.to_owned());
        Self { store, state_dir: state_dir.to_owned(), boot, sysctl_root, apart, absent: HashMap::new() }
    }

    /// Another least time.
    pub(super) const fn keep_apart(&mut self, apart: Duration) {
        self.apart = apart;
    }

    /// Ends what is dead, notes what seems so. Answers the addresses that were freed.
    pub(super) fn stage(&mut self, vnics: &[HostVnic], findings: &mut Findings) -> Vec<IpAddr> {
        self.settle(findings);
        let (Ok((held, _)), Ok(now)) = (self.store.read_sound(), BootTime::now()) else { return Vec::new() };
        let overdue = |it: &Allocation| it.tentative_until.is_some_and(|until| until <= now);
        let settled: Vec<Allocation> =
            held.allocations.into_iter().filter(|it| it.tentative_until.is_none() || overdue(it)).collect();
        if settled.is_empty() {
            self.absent.clear();
            return Vec::new();
        }
        let mut places = match self.places() {
            Ok(places) => places,
            Err(error) => {
                findings.conditions.push(unknown(&error));
                return Vec::new();
            }
        };
        let links = match netlink::Socket::open().and_then(|mut socket| socket.links()) {
            Ok(links) => Alive::among(&links),
            Err(error) => {
                findings.conditions.push(unknown(&error));
                return Vec::new();
            }
        };
        // What could not be looked at is as it was.
        let before = std::mem::take(&mut self.absent);
        let mut freed = Vec::new();
        for allocation in settled.into_iter().filter(|allocation| overdue(allocation) || !links.has(allocation)) {
            let key = allocation.key.to_string();
            let known = before.get(&key).filter(|known| known.allocation == allocation);
            let since = known.map_or_else(Instant::now, |known| known.since);
            // The ADD of a lease that ran out has had longer than that already.
            if known.is_some_and(|known| known.since.elapsed() >= self.apart) || overdue(&allocation) {
                let resists = match self.end(&allocation, vnics, &mut places, findings) {
                    Ok(Ended::Freed(addresses)) => {
                        freed.extend(addresses);
                        continue;
                    }
                    Ok(Ended::Busy) => known.and_then(|known| known.resists.clone()),
                    Err(message) => Some(message),
                };
                if let Some(message) = &resists {
                    let condition = Condition::degraded(Reason::AttachmentLeftOver, message.clone());
                    findings.conditions.push(condition.about(holder(&allocation)));
                }
                self.absent.insert(key, Absent { since, allocation, resists });
            } else {
                self.absent.insert(key, Absent { since, allocation, resists: None });
            }
        }
        freed
    }

    /// Puts the record right where it was lost, or a verb was killed while it wrote it: what pods live by is held, what
    /// nothing leads to any more is free.
    fn settle(&self, findings: &mut Findings) {
        // What cannot be read is told by the stage of running pods; what is damaged is made anew as what was lost.
        if !matches!(self.store.sweep(), Ok(true) | Err(ipam::Error::Damaged { .. })) {
            return;
        }
        let owners = self.places().map_err(|error| chain(&error)).and_then(|mut places| {
            let owners = pod::owners(&mut places).map_err(|error| chain(&error))?;
            Ok((owners, places))
        });
        let (owners, mut places) = match owners {
            Ok(found) => found,
            Err(error) => {
                let condition = Condition::degraded(Reason::HostNetworkFailed, error);
                return findings.conditions.push(condition.about("pods that have gone"));
            }
        };
        // After the kernel has answered: what is damaged may be all that is known of who holds what.
        match self.store.set_aside() {
            Ok(Some(path)) => {
                let text = format!("attachment: what was damaged is now {}", path.display());
                findings.changes.push(Changed::new("attachment", text));
            }
            Ok(None) => {}
            Err(error) => {
                let condition = Condition::degraded(Reason::StateFailed, chain(&error));
                return findings.conditions.push(condition.about("damaged allocations"));
            }
        }
        let routed = |pod::Owner { address, link, identity }| Routed { address, link, identity };
        let routed: Vec<Routed> = owners.into_iter().map(routed).collect();
        let pools = Pools::read(&self.state_dir, &self.boot).ok();
        let settled = self.store.settle(&routed, pools.as_ref(), None, |link| places.has_link(link));
        if let Ok(count @ 1..) = settled {
            let text = format!("attachment add: the record of {count} running pod(s) was lost and was made anew");
            findings.changes.push(Changed::new("attachment", text));
        }
    }

    /// Nothing is to be ended here any more, or not yet.
    pub(super) fn rest(&mut self) {
        self.absent.clear();
    }

    /// DEL's work. Says what resists.
    fn end(
        &self,
        allocation: &Allocation,
        vnics: &[HostVnic],
        places: &mut Places,
        findings: &mut Findings,
    ) -> Result<Ended, String> {
        let nothing = || Ok(Ended::Freed(Vec::new()));
        let lock = self.store.try_attachment(&allocation.key).map_err(|error| chain(&error))?;
        let Some(_lock) = lock else { return Ok(Ended::Busy) };
        if self.store.find(&allocation.key).map_err(|error| chain(&error))?.as_ref() != Some(allocation) {
            return nothing();
        }
        let network = pods::network(allocation, |id| pods::link_of(vnics, id));
        let recorded = pod::recorded(&network, places).map_err(|error| chain(&error))?;
        // An ADD of the same attachment was faster than we. (One that was killed may have made its link.)
        let lasts = allocation.tentative_until.is_none();
        if lasts && recorded.iter().any(|(_, object)| matches!(object, Object::Link(_))) {
            return nothing();
        }
        let steps = plan(&[], &recorded);
        let failures = dismantle(&steps, places);
        if let Some(failure) = failures.first() {
            return Err(format!("its pod is gone, but not all of its network: {}", chain(failure)));
        }
        let now = BootTime::now().map_err(|error| chain(&error))?;
        let release = |held: &mut ipam::Allocations| {
            let same = held.find(&allocation.key) == Some(allocation);
            Ok::<_, ipam::Error>(if same { held.release(&allocation.key, now) } else { None })
        };
        let released = self.store.update_for(&allocation.key, release).map_err(|error| chain(&error))?;
        let Some(released) = released else { return nothing() };
        let addresses: Vec<IpAddr> = released.addresses.iter().map(|assigned| assigned.address).collect();
        findings.changes.push(ended(allocation, &addresses));
        Ok(Ended::Freed(addresses))
    }

    fn places(&self) -> Result<Places, netlink::Error> {
        Places::host(&self.sysctl_root)
    }
}

/// What links say of whom they belong to. Any of the three is enough: somebody may have renamed one, or taken its alias.
struct Alive {
    aliases: HashSet<String>,
    names: HashSet<vcn::IfName>,
    macs: HashSet<vcn::MacAddr>,
}

impl Alive {
    fn among(links: &[Link]) -> Self {
        Self {
            aliases: links.iter().filter_map(|link| link.alias.clone()).collect(),
            names: links.iter().map(|link| link.name.clone()).collect(),
            macs: links.iter().filter_map(|link| link.mac).collect(),
        }
    }

    fn has(&self, allocation: &Allocation) -> bool {
        let ends = LinkEnds::of(&allocation.key.to_string(), allocation.key.ifname.clone());
        self.aliases.contains(&ends.alias)
            || self.names.contains(&allocation.host_link)
            || self.macs.contains(&ends.host_mac)
    }
}

fn ended(allocation: &Allocation, addresses: &[IpAddr]) -> Changed {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let text = format!(
        "attachment del {} ({}; pod {}, whose link {} is gone without a DEL)",
        allocation.key,
        addresses.join(", "),
        holder(allocation),
        allocation.host_link
    );
    Changed::new("attachment", text)
}

fn unknown(error: &(dyn std::error::Error + 'static)) -> Condition {
    Condition::degraded(Reason::HostNetworkFailed, chain(error)).about("pods that have gone")
}
