//! Changes one link: journal, change, probes, and the leader's confirmation; otherwise everything is undone.

use std::thread;
use std::time::{Duration, Instant};

use channel::SentReply;
use installer::{PolicySetting, forget_policy_settings, note_policy_settings, read_link_option, write_link_option};
use ipam::BootId;
use netlink::Sysctls;
use resident::logging::chain;
use tunables::{Item, ItemReport, ItemState, LinkOption};

use super::journal::{Content, Journal, JournalStep, UnfinishedChange, Verdict};
use super::observed::ObservedLink;
use super::probe::{self, Probe};
use super::{LinkContext, restore};
use crate::node_policy::plan::{Record, Step};
use crate::probes::ProbeEnvironment;
use crate::settings::Settings;

/// How long the agent waits for the next request of the leader.
const CONFIRMATION: Duration = Duration::from_secs(120);
/// The interval between probes of gateway and metadata service until a request of the leader arrives, and the probes that may
/// fail in a row.
const REPROBE: Duration = Duration::from_secs(10);
const MISSES_MAX: u32 = 2;
/// Lost replies that are a failure: so many are not lost by chance, because the kernel repeats each for seconds.
const LOST_REPLIES: usize = 2;
/// How long a restore is tried at a time, and between attempts.
const RESTORE: Duration = Duration::from_secs(15);
const RESTORE_PAUSE: Duration = Duration::from_secs(1);
/// Between checks of the last contact.
const PAUSE: Duration = Duration::from_millis(200);

/// What a change needs.
pub(super) struct Change<'a> {
    pub(super) settings: &'a Settings,
    pub(super) boot: &'a BootId,
    pub(super) sysctls: &'a Sysctls,
    pub(super) environment: &'a ProbeEnvironment,
    pub(super) context: &'a LinkContext,
    pub(super) journal: &'a mut Journal,
    pub(super) record: &'a Record,
}

/// How a change ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Steps whose values hold.
    pub(super) kept: Vec<Step>,
    /// Steps that kernel or device refused, with the error.
    pub(super) refused: Vec<(Step, String)>,
    pub(super) reports: Vec<ItemReport>,
    /// Whether it was undone because the agent ends.
    pub(super) is_stopped: bool,
}

impl Change<'_> {
    /// Changes a link, and waits until that is confirmed or undone.
    pub(super) fn carry_out(mut self, link: &ObservedLink, steps: Vec<Step>, needs_leader: bool) -> Ended {
        let leader = self.context.contact.last().map(|contact| contact.peer);
        let (old_mtu, new_mtu) = (link.link.mtu.0, new_mtu(&steps).unwrap_or(link.link.mtu.0));
        let probes = probe::passing(self.environment, leader, old_mtu);
        if let Err(error) = self.prepare(link, &steps) {
            let failed = |step: &Step| step.report(ItemState::Failed, error.clone());
            return Ended { reports: steps.iter().filter_map(failed).collect(), ..Ended::default() };
        }
        let changed_at = Instant::now();
        let mut ended = Ended::default();
        for step in steps {
            match self.write(&step) {
                Ok(true) => ended.kept.push(step),
                Ok(false) => {
                    let message = "the kernel or the device cannot change it".to_owned();
                    ended.reports.extend(step.report(ItemState::Unsupported, message));
                }
                Err(error) => ended.refused.push((step, error)),
            }
        }
        let names: Vec<String> = ended.kept.iter().map(|step| format!("{}={}", step.item, step.to)).collect();
        tracing::info!(event = "policy.link_changed", change = names.join(" "), probes = probes.len());
        let verdict = match ended.kept.is_empty() {
            true => Ok(()),
            false => self.confirm(&probes, new_mtu, changed_at, needs_leader),
        };
        match verdict {
            Ok(()) => self.commit(&mut ended),
            Err(verdict) => {
                let failures = self.undo(verdict.clone());
                let Some(Verdict { state, message }) = verdict else {
                    return Ended { is_stopped: true, ..Ended::default() };
                };
                let message = if failures.is_empty() { format!("undone: {message}") } else { failures };
                tracing::warn!(event = "policy.link_undone", change = names.join(" "), state = state.as_str(), message);
                let undone = ended.kept.drain(..).filter_map(|step| step.report(state, message.clone()));
                ended.reports.extend(undone);
            }
        }
        ended
    }

    /// Writes down what a restore needs, before anything changes.
    fn prepare(&mut self, link: &ObservedLink, steps: &[Step]) -> Result<(), String> {
        let links = restore::save(&link.link, &self.settings.sysctl_root).map_err(|error| chain(&error))?;
        let journaled = steps.iter().filter_map(|step| {
            let revision = step.desired()?.revision.clone();
            let (before, set, noted) = (step.from.clone(), step.to.clone(), self.record.get(&step.item).cloned());
            Some(JournalStep { item: step.item.to_string(), before, set, revision, noted })
        });
        let change = UnfinishedChange { boot_id: self.boot.clone(), links, steps: journaled.collect(), verdict: None };
        self.journal.update(|content| content.unfinished = Some(change)).map_err(|error| chain(&error))?;
        let notes: Vec<PolicySetting> = steps.iter().filter_map(|step| self.note(step, &step.to)).collect();
        note_policy_settings(&self.settings.data_dir, self.boot, &notes).map_err(|error| {
            // Nothing has changed.
            let _ = self.journal.update(|content| content.unfinished = None);
            chain(&error)
        })
    }

    /// The note of a step in the record of earlier values.
    fn note(&self, step: &Step, set: &str) -> Option<PolicySetting> {
        let mark = step.desired()?.mark(&self.context.document, None);
        let (key, before, set) = (step.item.to_string(), step.from.clone(), set.to_owned());
        Some(PolicySetting { key, before, set, mark })
    }

    fn write(&self, step: &Step) -> Result<bool, String> {
        let (link, option) = parts(&step.item)?;
        write_link_option(&link, option, &step.to, self.sysctls).map_err(|error| chain(&error))
    }

    /// Whether the node can still be reached. Nothing if the agent ends.
    fn confirm(
        &self,
        probes: &[Probe],
        mtu: u32,
        changed_at: Instant,
        needs_leader: bool,
    ) -> Result<(), Option<Verdict>> {
        let is_stopped = || self.context.stop.is_set();
        let failed = |message| Some(Verdict { state: ItemState::Failed, message });
        let (local_probes, remote): (Vec<_>, Vec<_>) = probes.iter().cloned().partition(Probe::is_local);
        let lost = thread::scope(|scope| {
            let remote = scope.spawn(|| probe::lost(self.environment, &remote, mtu, is_stopped));
            let local = probe::lost(self.environment, &local_probes, mtu, is_stopped);
            [local, remote.join().ok().flatten()]
        });
        let [local, remote] = lost;
        match (local, &remote) {
            _ if is_stopped() => return Err(None),
            (Some(lost), _) => return Err(failed(lost)),
            // Leader and API server may be down by themselves.
            (None, Some(lost)) if !needs_leader => {
                return Err(Some(Verdict { state: ItemState::Unconfirmed, message: lost.clone() }));
            }
            (None, _) if !needs_leader => return Ok(()),
            (None, _) => {}
        }
        let local_probes = probe::raised(self.environment, local_probes, mtu);
        let contact = self.await_leader(&local_probes, mtu, changed_at, remote)?;
        match way_to_leader(contact, mtu).and_then(|probe| probe::lost_large(self.environment, probe, is_stopped)) {
            Some(_) if is_stopped() => Err(None),
            Some(lost) => Err(failed(lost)),
            None => Ok(()),
        }
    }

    /// Waits for a reply to the leader; `lost` says what else is lost.
    fn await_leader(
        &self,
        local: &[Probe],
        mtu: u32,
        changed_at: Instant,
        lost: Option<String>,
    ) -> Result<SentReply, Option<Verdict>> {
        let failed = |message| Some(Verdict { state: ItemState::Failed, message });
        let answered = probe::list(local);
        tracing::info!(event = "policy.link_probed", answered, "the change is kept when a reply to the leader arrives");
        let (mut probed_at, mut misses) = (Instant::now(), 0);
        loop {
            if let Some(contact) = self.context.contact.last().filter(|contact| contact.accepted > changed_at) {
                return Ok(contact);
            }
            if self.context.stop.is_set() {
                return Err(None);
            }
            if self.context.contact.lost_since(changed_at) >= LOST_REPLIES {
                return Err(failed("requests of the leader arrive, but the replies are lost".to_owned()));
            }
            // The path may also fail late, for example when a neighbour entry expires.
            if probed_at.elapsed() > REPROBE {
                let missing = probe::lost_now(self.environment, local, mtu);
                misses = if missing.is_some() { misses + 1 } else { 0 };
                if let Some(missing) = missing.filter(|_| misses == MISSES_MAX) {
                    return Err(failed(missing));
                }
                probed_at = Instant::now();
            }
            if changed_at.elapsed() > CONFIRMATION {
                let silent = || format!("no reply to the leader arrived within {} s", CONFIRMATION.as_secs());
                let message = lost.unwrap_or_else(silent);
                return Err(Some(Verdict { state: ItemState::Unconfirmed, message }));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Keeps the change: what the kernel has is noted, and the journal closed.
    fn commit(&mut self, ended: &mut Ended) {
        let mut notes = Vec::new();
        for step in &ended.kept {
            let Ok((link, option)) = parts(&step.item) else { continue };
            // A device may round a number.
            let current = read_link_option(&link, option, self.sysctls).ok().flatten();
            notes.extend(self.note(step, current.as_deref().unwrap_or(&step.to)));
        }
        // What had a note has its earlier one again.
        let without_value = ended.refused.iter().map(|(step, _)| step.item.to_string());
        let without_value: Vec<String> = without_value.chain(ended.reports.iter().map(|it| it.item.clone())).collect();
        let (noted, new): (Vec<_>, Vec<_>) =
            without_value.into_iter().partition(|key| self.record.values().any(|it| it.key == *key));
        notes.extend(self.record.values().filter(|it| noted.contains(&it.key)).cloned());
        let kept: Vec<String> = ended.kept.iter().map(|step| step.item.to_string()).collect();
        let written = self.journal.update(|content| {
            if let Some(change) = &mut content.unfinished {
                change.steps.retain(|step| kept.contains(&step.item));
            }
            content.commit();
        });
        let recorded = note_policy_settings(&self.settings.data_dir, self.boot, &notes)
            .and_then(|()| forget_policy_settings(&self.settings.data_dir, self.boot, &new));
        // The value holds. Without the journal's end the next agent undoes it, and it is set once more.
        let errors = [written.err().map(|error| chain(&error)), recorded.err().map(|error| chain(&error))];
        errors.into_iter().flatten().for_each(|error| tracing::warn!(event = "policy.link_not_recorded", error));
    }

    /// Restores the link, the record and the journal. Returns what failed, as one text.
    fn undo(&mut self, verdict: Option<Verdict>) -> String {
        let begun = self.journal.update(|content| {
            if let Some(change) = &mut content.unfinished {
                change.verdict = verdict;
            }
        });
        if let Err(error) = begun {
            tracing::warn!(event = "policy.link_not_recorded", error = chain(&error));
        }
        undo(self.settings, self.boot, self.sysctls, self.journal)
    }
}

/// Undoes the unfinished change of this agent or of an earlier one, and closes the journal when all is as before. A driver that
/// resets its device may refuse for seconds, so it is tried for a while; the next comparison goes on with what is left. Returns what
/// failed.
pub(super) fn undo(settings: &Settings, boot: &BootId, sysctls: &Sysctls, journal: &mut Journal) -> String {
    let Some(change) = journal.content.unfinished.clone() else { return String::new() };
    let is_same_boot = change.boot_id == *boot;
    let begun = Instant::now();
    loop {
        let failures = restore::restore(&change, is_same_boot, sysctls);
        if failures.is_empty() {
            break;
        }
        if begun.elapsed() > RESTORE {
            return failures.join("; ");
        }
        thread::sleep(RESTORE_PAUSE);
    }
    let (noted, new): (Vec<_>, Vec<_>) = change.steps.iter().partition(|step| step.noted.is_some());
    let new: Vec<String> = new.into_iter().map(|step| step.item.clone()).collect();
    let earlier: Vec<PolicySetting> = noted.into_iter().filter_map(|step| step.noted.clone()).collect();
    let mut failures = Vec::new();
    if is_same_boot {
        let recorded = forget_policy_settings(&settings.data_dir, boot, &new)
            .and_then(|()| note_policy_settings(&settings.data_dir, boot, &earlier));
        failures.extend(recorded.err().map(|error| chain(&error)));
    }
    failures.extend(journal.update(Content::close).err().map(|error| chain(&error)));
    failures.join("; ")
}

/// The largest packets that both ends take, if the leader's MTU is known.
fn way_to_leader(SentReply { peer, segment, .. }: SentReply, mtu: u32) -> Option<Probe> {
    // The headers of IP and TCP, without options.
    let headers = if peer.is_ipv6() { 60 } else { 40 };
    let size = u16::try_from((segment? + headers).min(mtu)).ok()?;
    Some(probe::large(peer, size))
}

fn new_mtu(steps: &[Step]) -> Option<u32> {
    let is_mtu = |step: &&Step| matches!(&step.item, Item::Link { option: LinkOption::Mtu, .. });
    steps.iter().find(is_mtu)?.to.parse().ok()
}

/// A link item's link and option.
pub(super) fn parts(item: &Item) -> Result<(vcn::IfName, &LinkOption), String> {
    match item {
        Item::Link { link, option } => Ok((link.parse().map_err(|error| format!("{item}: {error}"))?, option)),
        _ => Err(format!("{item} is not of a link")),
    }
}
