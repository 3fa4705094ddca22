//! Keeps the VnicAttachments in line with the VnicProfiles: observes, plans, applies, reports; again after each change.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Resource;
use resident::logging::chain;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::events::{EventContent, Level};
use crate::profile::apply::{apply, write_status};
use crate::profile::decide::{Decision, Memory};
use crate::profile::plan::step::Step;
use crate::profile::profiles::Profiles;
use crate::profile::report::changes;
use crate::profile::report::failures::{Failure, failures};
use crate::profile::retry_states::FailureTime;

/// The interval between two reconciles: changes come in bursts, and ten thousand nodes take some milliseconds.
const PACE: Duration = Duration::from_secs(1);
/// The interval without a change, in case one was missed. Such a reconcile writes nothing if nothing is to be done.
const RESYNC: Duration = Duration::from_mins(5);

impl Profiles {
    pub(crate) async fn run(self) {
        let mut memory = Memory::default();
        loop {
            let next;
            (next, memory) = self.reconcile(memory).await;
            sleep(PACE).await;
            // Cancel-safe: a notification that is not waited for stays; and a timer.
            tokio::select! {
                () = self.store.changed().notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// One reconcile. Returns when the next one is due.
    async fn reconcile(&self, memory: Memory) -> (Instant, Memory) {
        let now = Instant::now();
        let (decided, mut memory) = self.decide_aside(memory).await;
        let outcomes = apply(&self.client, &in_turn(&decided.steps), Instant::now() + self.round).await;
        let went = outcomes.iter().map(|(step, outcome)| (*step, outcome.is_ok()));
        let failed = memory.objects.note_round(went, Instant::now(), self.chance);
        for (step, outcome) in &outcomes {
            self.metrics.wrote(step.kind(), outcome.is_ok());
            if let Err(error) = outcome {
                tracing::debug!(event = "profile.step_failed", %step, error = chain(error));
            }
        }
        self.report_failures(&decided, &failures(&outcomes), &failed);
        let end = Instant::now() + self.round;
        let mut is_whole = outcomes.len() == decided.steps.len();
        for (profile, (read, status)) in &decided.profiles {
            let Some(status) = status else { continue };
            if Instant::now() >= end {
                is_whole = false;
                break;
            }
            if memory.statuses.has(profile, now) {
                continue;
            }
            let written = write_status(&self.client, profile, status).await;
            self.metrics.wrote("profile_status", written.is_ok());
            let at = FailureTime { now: Instant::now(), chance: (self.chance)() };
            memory.statuses.note(profile, &[(profile.as_str(), written.is_ok())], at);
            match written {
                Ok(()) => drop(changes::event(read, status).map(|event| self.events.report(event))),
                Err(error) => tracing::warn!(event = "profile.status", profile, error = chain(&error)),
            }
        }
        let rest = (!is_whole).then_some(now);
        let after = Instant::now();
        let due = [decided.next, memory.objects.next(after), memory.statuses.next(after), rest];
        (due.into_iter().flatten().fold(now + RESYNC, Instant::min), memory)
    }

    /// Reports failed steps: one log line and one Event per profile; the Event about every ten minutes while it fails.
    fn report_failures(
        &self,
        decided: &Decision,
        failures: &BTreeMap<Option<&str>, Failure<'_>>,
        in_a_row: &BTreeMap<String, u32>,
    ) {
        for (profile, failure) in failures {
            let waiting = decided.waiting.get(profile.unwrap_or_default()).copied().unwrap_or_default();
            tracing::warn!(event = "profile.steps_failed", profile, waiting, %failure);
            let Some((read, _)) = profile.and_then(|profile| decided.profiles.get(profile)) else { continue };
            let note = match waiting {
                0 => failure.to_string(),
                _ => format!("{failure}; {waiting} more wait until one is accepted"),
            };
            let number = profile.and_then(|profile| in_a_row.get(profile)).copied().unwrap_or_default();
            if number == 1 || number >= 10 && number.is_multiple_of(5) {
                self.events.report(EventContent {
                    regarding: read.object_ref(&()),
                    level: Level::Warning,
                    reason: "StampingFailed",
                    action: "Stamp",
                    note,
                });
            }
        }
    }
}

/// Interleaves the steps of all profiles, each profile's in order, so that unanswered steps of one do not delay all others.
fn in_turn(steps: &[Step]) -> Vec<&Step> {
    let mut before: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let mut turns: Vec<(usize, &Step)> = Vec::with_capacity(steps.len());
    for step in steps {
        let turn = before.entry(step.profile()).or_default();
        turns.push((*turn, step));
        *turn += 1;
    }
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, step)| step).collect()
}
