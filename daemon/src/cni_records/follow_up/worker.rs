//! Does the work, synchronously. The packet socket is opened once and kept: closing one costs more than the work.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipam::{BootTime, COOLDOWN, FreedAddress, Pools, Store, VnicPool};
use netlink::{Announcer, conntrack};
use resident::logging::chain;
use vcn::Family;

use crate::facts::follow_ups::DueWork;
use crate::lifecycle::agent::Agent;

/// The work, as a word for logs and metrics.
const ANNOUNCE: &str = "announce";
const FORGET: &str = "forget";

/// Time limit of one walk through a table of millions of connections; announcements wait for it.
const WALK_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Worker {
    agent: Arc<Agent>,
    store: Store,
    announcer: Option<Announcer>,
    /// The work that failed the last time; logged once.
    failing: BTreeSet<&'static str>,
}

impl Worker {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        let store = Store::new(&agent.settings.state_dir, agent.boot.clone());
        Self { agent, store, announcer: None, failing: BTreeSet::new() }
    }

    /// Does what is due. A failure does not stop the rest; it is logged when it begins and when it ends. Returns the time until the
    /// next cooldown ends, `None` without a check or a cooldown, or an error if the check failed.
    pub(super) fn work(&mut self, due: &DueWork) -> Result<Option<Duration>, ()> {
        if !due.announce.is_empty() {
            let announced = self.announce(&due.announce);
            self.settle(ANNOUNCE, due.announce.len(), announced);
        }
        if due.forget {
            let (addresses, forgotten) = match self.unforgotten() {
                Ok(freed) => (freed.len(), self.flush(&freed.into_iter().map(|freed| freed.address).collect())),
                Err(error) => (0, Err(chain(&error))),
            };
            self.settle(FORGET, addresses, forgotten);
        }
        if !due.check {
            return Ok(None);
        }
        match self.check_cooldowns() {
            Ok((forgotten, next)) => {
                if forgotten > 0 {
                    self.settle(FORGET, forgotten, Ok(()));
                }
                Ok(next)
            }
            Err((addresses, error)) => {
                self.settle(FORGET, addresses, Err(error));
                Err(())
            }
        }
    }

    /// Announces each address in the subnet of its VNIC, if the VNIC and its link are there.
    fn announce(&mut self, addresses: &[IpAddr]) -> Result<(), String> {
        let pools = Pools::read(&self.agent.settings.state_dir, &self.agent.boot).map_err(|error| chain(&error))?;
        let mut socket = netlink::Socket::open().map_err(|error| chain(&error))?;
        let announcer = match self.announcer.take() {
            Some(announcer) => announcer,
            None => Announcer::open().map_err(|error| chain(&error))?,
        };
        let mut links: HashMap<&str, Option<u32>> = HashMap::new();
        let mut outcome = Ok(());
        for address in addresses {
            let Some(vnic) = vnic_of(*address, &pools) else { continue };
            // The request for the link also waits until it can send.
            let index = links.entry(vnic.link.as_str()).or_insert_with(|| {
                let link = socket.link(&vnic.link).ok().filter(|link| link.up);
                link.map(|link| link.index)
            });
            let Some(index) = index else { continue };
            match announcer.announce(*index, *address, vnic.mac) {
                Err(error) if !error.is_not_found() => outcome = outcome.and(Err(chain(&error))),
                _ => {}
            }
        }
        self.announcer = Some(announcer);
        outcome
    }

    /// The freed addresses that are not marked as forgotten; no pod has one of them.
    fn unforgotten(&self) -> Result<Vec<FreedAddress>, ipam::Error> {
        Ok(self.store.freed()?.into_iter().filter(|freed| !freed.forgotten).collect())
    }

    /// Removes the connections of addresses whose cooldown has ended, and marks these, so that an ADD need not do it. Returns how
    /// many there were and the time until the next cooldown ends; on failure, how many addresses it concerned.
    fn check_cooldowns(&mut self) -> Result<(usize, Option<Duration>), (usize, String)> {
        let of_none = |error: ipam::Error| (0, chain(&error));
        let freed = self.unforgotten().map_err(of_none)?;
        let now = BootTime::now().map_err(of_none)?;
        let (ended, cooling): (Vec<FreedAddress>, Vec<FreedAddress>) =
            freed.into_iter().partition(|freed| now.since(freed.at) >= COOLDOWN);
        let next = cooling.iter().map(|freed| COOLDOWN.saturating_sub(now.since(freed.at))).min();
        if ended.is_empty() {
            return Ok((0, next));
        }
        let of_all = |error| (ended.len(), error);
        self.flush(&ended.iter().map(|freed| freed.address).collect()).map_err(of_all)?;
        // One that a pod has got since is not marked.
        self.store.forget(&ended).map_err(|error| of_all(chain(&error)))?;
        Ok((ended.len(), next))
    }

    fn flush(&mut self, addresses: &HashSet<IpAddr>) -> Result<(), String> {
        if addresses.is_empty() || conntrack::is_idle(&self.agent.settings.sysctl_root) {
            return Ok(());
        }
        let begun = Instant::now();
        let socket = conntrack::ConntrackSocket::open().map_err(|error| chain(&error))?;
        let deleted = socket.delete_by_addresses(addresses, || begun.elapsed() < WALK_TIMEOUT);
        let deleted = deleted.map_err(|error| chain(&error))?;
        self.agent.metrics.connections_forgotten(deleted.connections);
        match deleted.all {
            true => Ok(()),
            false => Err(format!("not all connections were removed within {} s", WALK_TIMEOUT.as_secs())),
        }
    }

    /// Counts the result, and logs when failures begin and end.
    fn settle(&mut self, what: &'static str, addresses: usize, outcome: Result<(), String>) {
        self.agent.metrics.followed_up(what, outcome.is_ok(), addresses);
        match outcome {
            Ok(()) if self.failing.remove(what) => tracing::info!(event = "follow_up.recovered", what),
            Err(error) if self.failing.insert(what) => tracing::warn!(event = "follow_up.failed", what, "{error}"),
            Ok(()) | Err(_) => {}
        }
    }
}

fn vnic_of(address: IpAddr, pools: &Pools) -> Option<&VnicPool> {
    let holds = |vnic: &&VnicPool| vnic.families.of(Family::of(address)).is_some_and(|pool| pool.contains(address));
    pools.vnics.iter().find(holds)
}
