//! One pass: from what is known to a node that is as it should be. Synchronous; it owns everything that the agent writes.
//!
//! ```text
//!   world ─┐                                 ┌─▶ host's network ─┐
//!   links ─┼─▶ slots, whose pods ─▶ desired ─┤                   ├─▶ installer ─▶ Pass
//!   files ─┘                                 ├─▶ pools.json ─────┘
//!                                            └─▶ running pods
//! ```
//!
//! Every stage is tried, whatever became of the one before; what failed is a condition of the pass. A preview runs the same
//! stages and changes nothing.

mod dead;
mod exhausted;
pub mod host;
mod installation;
pub mod interference;
mod orphans;
pub(crate) mod pods;
mod slow;
mod stages;
mod unplugged;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::NativePodNetwork;
use datapath::host::HostVnic;
use installer::SettingChange;
use ipam::{BootId, BootTime, Pools};
use resident::logging::chain;
use tokio::sync::Notify;
use vcn::Ocid;

use crate::decide::desired::{self, Choices, Facts, Wanted};
use crate::decide::devices::Devices;
use crate::decide::pools::{self, Hosted};
use crate::decide::refused;
use crate::decide::slots::{SlotError, SlotFile, Slots};
use crate::decide::usage::Usage;
use crate::lifecycle::directories::{self, Directories};
use crate::lifecycle::reload::Configuration;
use crate::reconcile::host::Host;
use crate::reconcile::interference::{Interference, Subject};
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::{Cause, Pass, VnicState};
use crate::settings::Settings;
use crate::sources::node_facts::NodeFacts;
use crate::sources::routers::Routers;
use crate::triggers::drift_hints::Suspects;

use installation::{Verdict, Whose};
pub use pods::Attention;
use slow::Slow;

/// Whoever makes the node as it should be. There is one per node.
#[derive(Debug)]
pub struct Reconciler {
    settings: Arc<Settings>,
    boot: BootId,
    host: Host,
    devices: Devices,
    slot_file: SlotFile,
    /// `None` until the file was read.
    slots: Option<Slots>,
    installation: installation::Installation,
    routers: Routers,
    /// Told when a router answered for which a pass did not wait.
    answered: Arc<Notify>,
    pods: pods::Pods,
    exhausted: exhausted::Exhausted,
    unplugged: unplugged::Unplugged,
    dead: Slow<dead::Dead>,
    orphans: Slow<orphans::Orphans>,
    interference: Interference,
    /// Steps that failed in the last pass.
    failed: Vec<stages::Failed>,
    /// When this reconciler was made.
    since: Instant,
    /// What is wrong with the configuration.
    misconfigured: Vec<Condition>,
    /// Those it works in, as they were at the start.
    directories: Directories,
}

/// A pass in the making.
#[derive(Debug, Default)]
struct Findings {
    changes: Vec<crate::report::reconcile_report::Changed>,
    conditions: Vec<Condition>,
}

impl Reconciler {
    /// # Errors
    /// When not even the boot id can be had.
    pub fn new(settings: Arc<Settings>) -> Result<Self, ipam::Error> {
        let boot = BootId::current()?;
        let answered = Arc::new(Notify::new());
        let by_router = answered.clone();
        let Settings { state_dir, sysctl_root, dead_after, .. } = &*settings;
        Ok(Self {
            pods: pods::Pods::new(state_dir, sysctl_root, boot.clone()),
            exhausted: exhausted::Exhausted::new(state_dir, boot.clone()),
            unplugged: unplugged::Unplugged::default(),
            dead: Slow::new(dead::Dead::new(state_dir, sysctl_root, boot.clone(), *dead_after)),
            orphans: Slow::new(orphans::Orphans::new(state_dir, sysctl_root, boot.clone(), *dead_after)),
            interference: Interference::new(&settings.host_root, &settings.data_dir, settings.may_write_drop_ins),
            boot,
            host: Host::new(&settings.sysctl_root),
            devices: Devices::default(),
            slot_file: SlotFile::new(&settings.data_dir),
            slots: None,
            installation: installation::Installation::new(),
            routers: Routers::new(move || by_router.notify_one()),
            answered,
            failed: Vec::new(),
            since: Instant::now(),
            misconfigured: Vec::new(),
            directories: Directories::of(&settings),
            settings,
        })
    }

    /// One that previews, once: no later pass will know more, so plugins and firewalls are waited for, and nothing waits for it.
    ///
    /// # Errors
    /// When not even the boot id can be had.
    pub fn for_one_preview(settings: Arc<Settings>) -> Result<Self, ipam::Error> {
        let mut one = Self::new(settings)?;
        one.interference.wait_as_a_person_does();
        Ok(one)
    }

    /// Goes by another configuration from the next pass on. Where things are is as it was.
    pub fn adopt(&mut self, configuration: Configuration) {
        let Configuration { settings, conditions } = configuration;
        self.dead.stage().keep_apart(settings.dead_after);
        self.orphans.stage().keep_apart(settings.dead_after);
        self.interference.allow(settings.may_write_drop_ins);
        self.settings = settings;
        self.misconfigured = conditions;
    }

    /// Told when a plugin has answered which versions it speaks, or a router whether it is there, and another pass would know
    /// more.
    #[must_use]
    pub fn answered(&self) -> Arc<Notify> {
        self.answered.clone()
    }

    /// A directory of ours or of the runtime's that somebody removed or moved away, or put another in the place of. Ours may be
    /// a mount of it: then what is written here is seen by nobody. With the state directory the sockets went, too.
    #[must_use]
    pub fn lost(&self, cause: Cause) -> Option<&Path> {
        self.directories.lost(cause)
    }

    /// Makes the node as it should be, as far as that is known and can be done.
    pub fn pass(&mut self, world: &NodeFacts, cause: Cause) -> Pass {
        let (begun, at) = (Instant::now(), SystemTime::now());
        let (world, refused) = world.admitted();
        let world = &*world;
        let mut findings = Findings { conditions: self.misconfigured.clone(), ..Findings::default() };
        let preview = cause == Cause::Preview;
        if !preview {
            self.make_directories(&mut findings);
        }
        stages::sources(world, begun, &mut findings);
        findings.conditions.extend(refused::conditions(&refused));
        let links = match self.host.links() {
            Ok(links) => self.devices.recognised(world.vnics(), links),
            Err(error) => {
                findings.conditions.push(Condition::blocking(Reason::HostNetworkFailed, chain(&error)));
                Vec::new()
            }
        };
        let slots = self.assign_slots(world, preview, &mut findings);
        let Verdict { whose, oke } = self.installation.verdict(&self.settings, world, cause);
        let ours = whose == Whose::Ours;
        // In doubt nothing is taken away; and files are read only where their answer is asked for.
        let finished = world.npn().is_some_and(NativePodNetwork::usable);
        let lived = whose != Whose::Others || !finished || stages::lived(&self.settings, &self.boot);
        let Settings { ports, pods_may_use_metadata, pods_may_spoof, .. } = &*self.settings;
        let (pods_may_use_metadata, pods_may_spoof) = (*pods_may_use_metadata, *pods_may_spoof);
        let choices = Choices { ports, pods_may_use_metadata, pods_may_spoof, ours, oke, lived };
        let ipv6 = self.host.speaks_ipv6();
        let (own, held) = stages::addresses(&self.host, &self.settings.state_dir, &self.boot);
        let facts = Facts { vnics: world.vnics(), npn: world.npn(), links: &links, ipv6, own: &own, held: &held };
        let wanted = slots.map(|slots| desired::wanted(facts, &slots, choices));
        let Wanted { network, spared, left_alone, undecided, conditions } = wanted.unwrap_or_default();
        if let Some(network) = &network {
            let secondary = network.vnics.iter().map(|host| (&host.vnic.id, host.placement.link()));
            let primary = world.vnics().first().map(|vnic| (&vnic.id, &network.primary));
            self.devices.note(secondary.chain(primary), &links);
        }
        // Where nobody was asked yet, it is told what keeps that.
        let undecided = if world.npn.is_unasked() { Vec::new() } else { undecided };
        stages::undecided(world, &undecided, &mut findings);
        // One whose entry cannot be used is listed.
        let unlisted = |it: &Condition| it.reason == Reason::VnicNotListed;
        let is_unusable = |it: &Condition| it.subject.as_deref().is_some_and(|subject| world.is_unusable(subject));
        findings.conditions.extend(conditions.into_iter().filter(|it| !(unlisted(it) && is_unusable(it))));
        // A young agent has not seen a short list of VNICs being short: what it lacks may be there a moment later.
        let clean = preview || self.since.elapsed() >= self.settings.detach_grace && !desired::is_short(facts);
        let note = |changes: &[SettingChange]| installer::note_settings(&self.settings.data_dir, &self.boot, changes);
        let attempt = stages::Attempt {
            cause,
            whose,
            clean,
            spared,
            held: &held,
            undecided,
            note: &note,
            failed: &mut self.failed,
        };
        let hosted = network.as_ref().and_then(|network| stages::host(&self.host, network, attempt, &mut findings));
        let doubtful = |vnic: &&HostVnic| world.held().any(|held| *held == vnic.vnic.id);
        let doubtful: Vec<&HostVnic> = network.iter().flat_map(|it| &it.vnics).filter(doubtful).collect();
        let silent = self.routers.silent(&doubtful);
        stages::unlisted(world, &silent, ipv6, &mut findings);
        let offers = ours && self.publish(world, (hosted.as_deref(), &silent), preview, &mut findings);
        let usable = offers && hosted.is_some();
        let wanted = network.as_ref().map(|network| network.vnics.as_slice()).unwrap_or_default();
        // Where the pod network is somebody else's, he may have given the addresses to others.
        let freed = match ours {
            true => {
                self.pods.stage(cause, wanted, &mut findings);
                let freed = self.dead.pass(cause, &mut findings, |dead, findings| dead.stage(wanted, findings));
                self.orphans.pass(cause, &mut findings, orphans::Orphans::stage);
                freed
            }
            false => {
                self.pods.rest(&mut findings);
                self.dead.rest(dead::Dead::rest);
                self.orphans.rest(orphans::Orphans::rest);
                Vec::new()
            }
        };
        if let Some(network) = &network {
            let (conditions, changes) = self.interference.look(Subject { network, links: &links }, cause);
            findings.conditions.extend(conditions);
            findings.changes.extend(changes);
        }
        let primary = network.as_ref().map(|it| &it.primary);
        let vnics = stages::states(world, (wanted, &left_alone), primary, &findings.conditions);
        let pod_network = self.installation.stage(&self.settings, world, (ours, usable, cause), &mut findings);
        if pod_network.install {
            stages::pods(world, offers, usable, &mut findings.conditions);
            // Last: the stages before free addresses.
            findings.conditions.extend(self.exhausted.stage(cause));
        } else {
            self.exhausted.rest();
        }
        let Findings { changes, mut conditions } = findings;
        let is_listed = |vnic: &str| !world.is_missing(vnic);
        self.unplugged.settle(&mut conditions, is_listed, (cause, self.settings.detach_grace, begun));
        conditions.sort_by_key(|condition| (condition.severity, condition.reason));
        conditions.dedup();
        Pass {
            cause,
            unix_millis: millis(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()),
            micros: millis(begun.elapsed().as_micros()),
            changes,
            conditions,
            vnics,
            freed,
            machine: (!world.vnics().is_empty()).then(|| vcn::MachineKind::of(world.vnics())),
            usable,
            pod_network: Some(pod_network),
        }
    }

    /// Whether signs of trouble with running pods, or addresses that ran out or are free again, are worth a pass, and when to
    /// ask again.
    pub fn attention(&mut self, signs: Suspects) -> Attention {
        let Attention { look, again } = self.pods.attention(signs);
        Attention { look: look || self.exhausted.has_changed(self.installation.is_ours()), again }
    }

    /// In what time a pass is due, if nothing happens before, for what lasts too long then.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.unplugged.next(Instant::now())
    }

    /// When [`Self::attention`] is due after a pass although nothing happens.
    #[must_use]
    pub fn attention_again(&self) -> Option<Duration> {
        self.pods.again()
    }

    /// pools.json as it should be; whether it offers any address.
    fn publish(
        &self,
        world: &NodeFacts,
        (hosted, silent): (Option<&[HostVnic]>, &[Ocid]),
        preview: bool,
        findings: &mut Findings,
    ) -> bool {
        let current = match Pools::read(&self.settings.state_dir, &self.boot) {
            Ok(pools) => Some(pools),
            Err(ipam::Error::NoPools { .. }) => None,
            Err(error) => {
                // A damaged file is of no use to the plugins either: it is written anew when there is something to say.
                findings.conditions.push(Condition::degraded(Reason::StateFailed, chain(&error)).about("pools.json"));
                None
            }
        };
        let offers = |pools: &Option<Pools>| pools.as_ref().is_some_and(Usage::offers_any);
        // Nothing is known of the host: what was published is as good as it was.
        let Some(hosted) = hosted else { return offers(&current) };
        // Not a cluster whose pods get VCN addresses, as far as anybody knows.
        if current.is_none() && world.npn().is_none() {
            return false;
        }
        let hosted = Hosted { vnics: hosted, silent, ipv6: self.host.speaks_ipv6() };
        let now = BootTime::now().unwrap_or_default();
        let (pools, conditions) = pools::next(world, hosted, current.as_ref(), (&self.boot, now), &findings.conditions);
        findings.conditions.extend(conditions);
        if current.as_ref() == Some(&pools) {
            return Usage::offers_any(&pools);
        }
        let written = if preview { Ok(true) } else { pools.write(&self.settings.state_dir) };
        match written {
            Ok(_) => {
                findings.changes.push(stages::published(&self.settings.state_dir, &pools));
                Usage::offers_any(&pools)
            }
            Err(error) => {
                let severity = if offers(&current) { Condition::degraded } else { Condition::blocking };
                findings.conditions.push(severity(Reason::StateFailed, chain(&error)).about("pools.json"));
                offers(&current)
            }
        }
    }

    /// Every VNIC's table; `None` when that cannot be known, and then nothing may be touched: what would look unwanted
    /// may be a pod's. Where the file is lost or cannot be written, the kernel's rules and the allocations know as well.
    fn assign_slots(&mut self, world: &NodeFacts, preview: bool, findings: &mut Findings) -> Option<Slots> {
        let trouble = |error: &(dyn std::error::Error + 'static)| {
            Condition::degraded(Reason::StateFailed, chain(error)).about("tables.json")
        };
        let read = self.slots.take().map_or_else(|| self.slot_file.read(), Ok);
        let known = read.as_ref().cloned().unwrap_or_default();
        if let Err(error) = &read {
            findings.conditions.push(trouble(error));
        }
        let vnics = world.vnics();
        if vnics.is_empty() || known.are_for(desired::secondary(vnics)) {
            self.slots = read.ok();
            return Some(known);
        }
        let mut slots = known.clone();
        match stages::referred(&self.host, &self.settings.state_dir, &self.boot, vnics) {
            Ok(referred) => slots.assign(desired::secondary(vnics), &referred),
            Err(text) => {
                findings.conditions.push(Condition::blocking(Reason::StateFailed, text).about("routing tables"));
                return None;
            }
        }
        let written = match &read {
            // A newer version's file, or one on a broken disk, is not ours to replace.
            Err(SlotError::TooNew { .. } | SlotError::Read { .. }) => return Some(slots),
            _ if preview => return Some(slots),
            Ok(_) if slots == known => Ok(()),
            Err(SlotError::Damaged { .. }) => self.slot_file.set_aside().and_then(|()| self.slot_file.write(&slots)),
            _ => self.slot_file.write(&slots),
        };
        match written {
            Ok(()) => self.slots = Some(slots.clone()),
            Err(error) => findings.conditions.push(trouble(&error)),
        }
        Some(slots)
    }

    /// The state directory is tmpfs and gone after a boot.
    fn make_directories(&self, findings: &mut Findings) {
        for directory in [&self.settings.state_dir, &self.settings.data_dir] {
            if let Err(error) = directories::make(directory) {
                let message = format!("creating {}: {error}", directory.display());
                findings.conditions.push(Condition::degraded(Reason::StateFailed, message).about(directory.display()));
            }
        }
    }
}

impl VnicState {
    /// Whether it is as it should be.
    #[must_use]
    pub const fn is_fine(&self) -> bool {
        self.trouble.is_none()
    }
}

fn millis(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
