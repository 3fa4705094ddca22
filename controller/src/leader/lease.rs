//! The Lease: one of several replicas leads. A replica that cannot renew the Lease exits at once, well before another may
//! take it.
//!
//! ```text
//!   renewed ├──── renewing, every tenth ────┤ 2/3: lost, the process exits   ├ 1: another replica may take it
//! ```
//!
//! Clocks of different machines are not compared: a waiting replica measures with its own clock for how long the Lease is
//! unchanged, like client-go. kube-lease-manager compares wall clocks. Two leaders could attach two VNICs for one request;
//! hence our own code.

mod record;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::args::LeaseSettings;
use record::{LeaseStep, Record, decide};
use resident::logging::chain;
use tunables::LeaderTerm;

/// The most time for releasing it: the kubelet waits ten seconds for the whole process.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// The Lease that the Role in the manifests names.
pub(crate) const NAME: &str = "oke-node-controller";
/// At most one write of our own comes between, and rarely one of another program.
const GIVING_BACK_TRIES: u32 = 3;

/// Who holds the Lease after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    Ours,
    Other,
    /// It changed between read and write.
    Unknown,
}

/// A Lease, held or not.
#[derive(Debug)]
pub(crate) struct Lease {
    api: Api<Object>,
    me: String,
    /// Whole seconds are written, so they are also used.
    seconds: u16,
    /// A random number in 0.0–1.0, for the jitter of waiting replicas.
    chance: fn() -> f64,
    /// The last record read, and since when it is unchanged; without a version, since when it is missing.
    seen: Option<(Record, Instant)>,
    /// When the last request that took or renewed it was sent.
    renewed: Option<Instant>,
    /// Whether such a request was ever sent: whatever the answer, it may be held.
    may_be_held: bool,
}

impl Lease {
    /// A Lease that is not held yet. `chance` is in 0.0–1.0, for the jitter of waiting replicas.
    pub(crate) fn new(client: Client, settings: &LeaseSettings, me: String, chance: fn() -> f64) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            me,
            seconds: settings.seconds,
            chance,
            seen: None,
            renewed: None,
            may_be_held: false,
        }
    }

    /// Waits until it is held. `answered` is called after each answer of the API server, with the leader.
    pub(crate) async fn acquire(&mut self, answered: impl Fn(Option<&str>)) {
        // Each state is logged once.
        let mut logged = None;
        loop {
            match self.attempt().await {
                Ok(Ownership::Ours) => return,
                Ok(Ownership::Other | Ownership::Unknown) => {
                    let holder = self.seen.as_ref().and_then(|(record, _)| record.holder.clone());
                    answered(holder.as_deref());
                    if logged != Some(Ok(holder.clone())) {
                        tracing::info!(event = "lease.waiting", holder, "another replica holds the Lease");
                        logged = Some(Ok(holder));
                    }
                }
                Err(error) => {
                    let error = chain(error.as_ref());
                    if logged != Some(Err(error.clone())) {
                        tracing::warn!(event = "lease.unreachable", error, "retried until it answers");
                        logged = Some(Err(error));
                    }
                }
            }
            sleep(self.period().mul_f64(0.75 + (self.chance)().clamp(0.0, 1.0) / 4.0)).await;
        }
    }

    /// The term in which it is held.
    pub(crate) fn term(&self) -> LeaderTerm {
        let record = self.seen.as_ref().map(|(record, _)| record.clone()).unwrap_or_default();
        LeaderTerm {
            lease: record.uid.unwrap_or_default(),
            number: u32::try_from(record.transitions).unwrap_or_default(),
        }
    }

    /// Renews it as long as that is possible. Returns why it is lost.
    pub(crate) async fn keep(&mut self) -> anyhow::Error {
        loop {
            sleep(self.period()).await;
            let Some(renewed) = self.renewed else { return anyhow::anyhow!("the Lease was never held") };
            let end = renewed + self.duration().mul_f64(2.0 / 3.0);
            // A request that hangs must not outlast the Lease.
            match timeout_at(end, self.renew_until(end)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(_) => return anyhow::anyhow!("the Lease was not renewed for two thirds of its duration"),
            }
        }
    }

    /// Releases it, so that the next replica need not wait.
    pub(crate) async fn release(&mut self) {
        if self.may_be_held {
            let _ = timeout(GIVING_BACK, self.give_back()).await;
        }
    }

    /// Releases it for another replica, and waits until that one has it: at most as long as the Lease is valid.
    pub(crate) async fn hand_over(&mut self) {
        self.release().await;
        let taken = async {
            loop {
                sleep(self.period()).await;
                let found = self.api.get_opt(NAME).await.ok().flatten();
                let holder = found.and_then(|object| Record::of(&object).holder);
                if holder.is_some_and(|holder| holder != self.me) {
                    return;
                }
            }
        };
        // If no other replica took it, this one takes it again.
        let _ = timeout(self.duration(), taken).await;
    }

    /// Reads first: a renewal may have been given up for this and take effect all the same, before or after the read.
    async fn give_back(&self) -> kube::Result<()> {
        for _ in 0..GIVING_BACK_TRIES {
            let found = self.api.get_opt(NAME).await?.map(|object| Record::of(&object));
            let Some(record) = found.filter(|record| record.holder.as_deref() == Some(&self.me)) else { break };
            match self.api.replace(NAME, &PostParams::default(), &self.object(&record, None)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                written => return written.map(drop),
            }
        }
        Ok(())
    }

    async fn renew_until(&mut self, end: Instant) -> anyhow::Result<()> {
        loop {
            let problem = match self.attempt().await {
                Ok(Ownership::Ours) => return Ok(()),
                Ok(Ownership::Other) => bail!("another replica took the Lease"),
                Ok(Ownership::Unknown) => anyhow::anyhow!("the Lease was written meanwhile"),
                Err(error) => error,
            };
            tracing::warn!(event = "lease.not_renewed", error = chain(problem.as_ref()));
            if Instant::now() + self.period() >= end {
                return Err(problem.context("the Lease could not be renewed"));
            }
            sleep(self.period()).await;
        }
    }

    /// One attempt to take or renew it.
    async fn attempt(&mut self) -> anyhow::Result<Ownership> {
        // At least a second: API servers are slower than the short leases of tests.
        let patience = self.duration().div_f64(3.0).max(Duration::from_secs(1));
        timeout(patience, self.attempt_once()).await.with_context(|| format!("no answer within {patience:?}"))?
    }

    async fn attempt_once(&mut self) -> anyhow::Result<Ownership> {
        let now = Instant::now();
        let found = self.api.get_opt(NAME).await.context("reading the Lease")?;
        let record = match found {
            Some(object) => Some(Record::of(&object)),
            // It was deleted. Its holder does not know that yet, and works until its next renewal.
            None => self.seen.as_ref().map(|(record, _)| Record { version: None, ..record.clone() }),
        };
        if let Some(record) = &record
            && self.seen.as_ref().is_none_or(|(before, _)| before != record)
        {
            self.seen = Some((record.clone(), now));
        }
        let unchanged = self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| now - *since);
        let params = PostParams::default();
        let step = decide(record.as_ref(), unchanged, &self.me);
        self.may_be_held |= step != LeaseStep::Wait;
        let written = match step {
            LeaseStep::Wait => return Ok(Ownership::Other),
            LeaseStep::Create(record) => self.api.create(&params, &self.object(&record, Some(&self.me))).await,
            LeaseStep::Write(record) => self.api.replace(NAME, &params, &self.object(&record, Some(&self.me))).await,
        };
        match written {
            Ok(object) => {
                self.seen = Some((Record::of(&object), now));
                // Counted from before it was sent: it may have been written late.
                self.renewed = Some(now);
                Ok(Ownership::Ours)
            }
            // Another write was faster, perhaps our own earlier one that came late.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.seen = None;
                Ok(Ownership::Unknown)
            }
            Err(error) => Err(error).context("writing the Lease"),
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    fn period(&self) -> Duration {
        self.duration().div_f64(10.0)
    }

    /// The object that makes it held or released; refused if it changed since `record` was read.
    fn object(&self, record: &Record, holder: Option<&str>) -> Object {
        let now = MicroTime(Timestamp::now());
        let same = record.holder.as_deref() == holder;
        Object {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                resource_version: record.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.unwrap_or_default().to_owned()),
                lease_duration_seconds: Some(self.seconds.into()),
                acquire_time: if same { record.acquired.map(MicroTime) } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(record.transitions + i32::from(!same && holder.is_some())),
                ..LeaseSpec::default()
            }),
        }
    }
}
