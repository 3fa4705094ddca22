//! Does it: synchronously, with a packet socket that is opened at first need and then kept (closing one costs more than all
//! the rest).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipam::{BootId, BootTime, COOLDOWN, Freed, Pools, Store, VnicPool};
use netlink::{Announcer, conntrack};
use resident::logging::chain;
use vcn::Family;

use super::{Done, Due};
use crate::report::metrics::Metrics;

/// What is done, as a word for logs and metrics.
const ANNOUNCE: &str = "announce";
const FORGET: &str = "forget";

/// How long connections are forgotten at a stretch: a table of millions. Announcements wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever does it.
#[derive(Debug)]
pub struct Worker {
    state_dir: PathBuf,
    boot: BootId,
    store: Store,
    sysctl_root: PathBuf,
    metrics: Arc<Metrics>,
    announcer: Option<Announcer>,
    /// What failed the last time: said once, until it works again.
    failing: BTreeSet<&'static str>,
}

impl Worker {
    /// Works for the node whose state is in `state_dir` and whose kernel settings are below `sysctl_root`, in the network
    /// namespace of the thread that calls [`Worker::work`].
    #[must_use]
    pub fn new(state_dir: &Path, sysctl_root: &Path, boot: BootId, metrics: Arc<Metrics>) -> Self {
        Self {
            store: Store::new(state_dir, boot.clone()),
            state_dir: state_dir.to_owned(),
            boot,
            sysctl_root: sysctl_root.to_owned(),
            metrics,
            announcer: None,
            failing: BTreeSet::new(),
        }
    }

    /// Does what is due, as far as it can be done. What fails is logged when it begins to and when it ends.
    pub fn work(&mut self, due: &Due) -> Done {
        let mut done = Done::default();
        if !due.announce.is_empty() {
            let announced = self.announce(&due.announce);
            done.failed |= !self.settled(ANNOUNCE, due.announce.len(), announced);
        }
        if !due.forget.is_empty() || due.forget_all {
            let (addresses, forgotten) = match self.freed(due) {
                Ok(freed) => (freed.len(), self.flush(&freed)),
                Err(error) => (due.forget.len(), Err(error)),
            };
            done.failed |= !self.settled(FORGET, addresses, forgotten);
        }
        if due.look {
            match self.look() {
                Ok((forgotten, next)) => {
                    done.next_look = next;
                    done.failed |= forgotten > 0 && !self.settled(FORGET, forgotten, Ok(()));
                }
                Err((addresses, error)) => done.failed |= !self.settled(FORGET, addresses, Err(error)),
            }
        }
        done
    }

    /// Tells each address's subnet that it is at its VNIC. One whose VNIC or link is gone has no subnet to tell.
    fn announce(&mut self, addresses: &[IpAddr]) -> Result<(), String> {
        let pools = Pools::read(&self.state_dir, &self.boot).map_err(|error| chain(&error))?;
        let mut socket = netlink::Socket::open().map_err(|error| chain(&error))?;
        let announcer = match self.announcer.take() {
            Some(announcer) => announcer,
            None => Announcer::open().map_err(|error| chain(&error))?,
        };
        let mut links: HashMap<&str, Option<u32>> = HashMap::new();
        let mut outcome = Ok(());
        for address in addresses {
            let Some(vnic) = vnic_of(*address, &pools) else { continue };
            // Asking for the link also waits until it can send.
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

    /// The addresses that were freed just now, but for those that somebody has already.
    fn freed(&self, due: &Due) -> Result<HashSet<IpAddr>, String> {
        let freed = self.store.freed().map_err(|error| chain(&error))?;
        let asked = |it: &Freed| due.forget.contains(&it.address) || due.forget_all && !it.forgotten;
        Ok(freed.into_iter().filter(asked).map(|it| it.address).collect())
    }

    /// Forgets the connections of addresses whose cooldown has ended since the last look, and notes that it did: whoever
    /// gets them then need not. Answers how many there were, and how long until the next cooldown ends; on failure, how
    /// many it was about.
    fn look(&mut self) -> Result<(usize, Option<Duration>), (usize, String)> {
        let of_none = |error: ipam::Error| (0, chain(&error));
        let freed = self.store.freed().map_err(of_none)?;
        let now = BootTime::now().map_err(of_none)?;
        let unforgotten = freed.into_iter().filter(|freed| !freed.forgotten);
        let (ended, cooling): (Vec<Freed>, Vec<Freed>) = unforgotten.partition(|freed| now.since(freed.at) >= COOLDOWN);
        let next = cooling.iter().map(|freed| COOLDOWN.saturating_sub(now.since(freed.at))).min();
        if ended.is_empty() {
            return Ok((0, next));
        }
        let of_all = |error| (ended.len(), error);
        self.flush(&ended.iter().map(|freed| freed.address).collect()).map_err(of_all)?;
        // One that somebody got meanwhile is not noted.
        self.store.forget(&ended).map_err(|error| of_all(chain(&error)))?;
        Ok((ended.len(), next))
    }

    fn flush(&mut self, addresses: &HashSet<IpAddr>) -> Result<(), String> {
        if addresses.is_empty() || conntrack::is_idle(&self.sysctl_root) {
            return Ok(());
        }
        let begun = Instant::now();
        let socket = conntrack::Socket::open().map_err(|error| chain(&error))?;
        let deleted = socket.delete_by_addresses(addresses, || begun.elapsed() < PATIENCE);
        let deleted = deleted.map_err(|error| chain(&error))?;
        self.metrics.connections_forgotten(deleted.connections);
        match deleted.all {
            true => Ok(()),
            false => Err(format!("there are more connections than can be forgotten in {} s", PATIENCE.as_secs())),
        }
    }

    /// Counts, and logs what begins to fail or ends failing. Says whether it went well.
    fn settled(&mut self, what: &'static str, addresses: usize, outcome: Result<(), String>) -> bool {
        self.metrics.followed_up(what, outcome.is_ok(), addresses);
        match outcome {
            Ok(()) => {
                if self.failing.remove(what) {
                    tracing::info!(event = "aftercare.works_again", what);
                }
                true
            }
            Err(error) => {
                if self.failing.insert(what) {
                    tracing::warn!(event = "aftercare.failed", what, "{error}");
                }
                false
            }
        }
    }
}

fn vnic_of(address: IpAddr, pools: &Pools) -> Option<&VnicPool> {
    let holds = |vnic: &&VnicPool| vnic.families.of(Family::of(address)).is_some_and(|pool| pool.contains(address));
    pools.vnics.iter().find(holds)
}
