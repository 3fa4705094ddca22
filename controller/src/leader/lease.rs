//! The lease: of several replicas one leads. A replica that cannot renew the lease ends at once, well before another may
//! take it.
//!
//! ```text
//!   renewed ├──── renewing, every tenth ────┤ 2/3: lost, the process ends   ├ 1: another one may take it
//! ```
//!
//! Nobody's clock is compared with another's: who waits measures by its own clock for how long the lease has not changed,
//! as client-go does. (kube-lease-manager compares wall clocks, and an attach that two controllers ask for is a VNIC too
//! many; hence our own.)

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

use crate::settings::LeaseSettings;
use record::{Record, Step, decide};
use resident::logging::chain;

/// The most time for giving it back: a kubelet's patience with the whole process is ten seconds.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// One write of our own at most comes between, and somebody else's hardly ever.
const GIVING_BACK_TRIES: u32 = 3;

/// Ownership the lease is after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    Ours,
    Other,
    /// It changed between being read and being written.
    Unknown,
}

/// A lease, held or not.
#[derive(Debug)]
pub struct Lease {
    api: Api<Object>,
    name: String,
    me: String,
    /// What is written is what is kept to: of a fraction, others would not know.
    seconds: u16,
    /// 0.0–1.0, for jitter.
    chance: fn() -> f64,
    /// The record as it was last read, and since when it is like that: or, if it has no version, since when it is gone.
    seen: Option<(Record, Instant)>,
    /// When the last request that made or kept it ours was sent.
    renewed: Option<Instant>,
    /// Whether such a request was ever sent: whatever was answered, it may be ours.
    asked: bool,
}

impl Lease {
    /// A lease that is not held yet. `chance` is in 0.0–1.0, for the jitter of those who wait.
    #[must_use]
    pub fn new(client: Client, settings: &LeaseSettings, me: String, chance: fn() -> f64) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            name: settings.name.clone(),
            me,
            seconds: settings.seconds,
            chance,
            seen: None,
            renewed: None,
            asked: false,
        }
    }

    /// Waits until it is ours, for ever. `answered` is called whenever the API server has answered.
    pub async fn acquire(&mut self, answered: impl Fn()) {
        // What was said last is not said again.
        let mut told = None;
        loop {
            match self.attempt().await {
                Ok(Ownership::Ours) => return,
                Ok(Ownership::Other | Ownership::Unknown) => {
                    answered();
                    let holder = self.seen.as_ref().and_then(|(record, _)| record.holder.clone());
                    if told != Some(Ok(holder.clone())) {
                        tracing::info!(event = "lease.waiting", holder, "another replica has the lease");
                        told = Some(Ok(holder));
                    }
                }
                Err(error) => {
                    let error = chain(error.as_ref());
                    if told != Some(Err(error.clone())) {
                        tracing::warn!(event = "lease.unreachable", error, "retried until it answers");
                        told = Some(Err(error));
                    }
                }
            }
            sleep(self.period().mul_f64(0.75 + (self.chance)().clamp(0.0, 1.0) / 4.0)).await;
        }
    }

    /// Keeps it as long as that is possible. Comes back with why it is lost.
    pub async fn keep(&mut self) -> anyhow::Error {
        loop {
            sleep(self.period()).await;
            let Some(renewed) = self.renewed else { return anyhow::anyhow!("the lease was never held") };
            let end = renewed + self.duration().mul_f64(2.0 / 3.0);
            // A request that hangs must not outlast the lease.
            match timeout_at(end, self.renew_until(end)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(_) => return anyhow::anyhow!("the lease was not renewed for two thirds of its time"),
            }
        }
    }

    /// Gives it back, so that the next one need not wait.
    pub async fn release(&mut self) {
        if self.asked {
            let _ = timeout(GIVING_BACK, self.give_back()).await;
        }
    }

    /// Reads what there is first: a renewal may have been given up for this, and be carried out all the same, before the read or
    /// after it.
    async fn give_back(&self) -> kube::Result<()> {
        for _ in 0..GIVING_BACK_TRIES {
            let found = self.api.get_opt(&self.name).await?.map(|object| Record::of(&object));
            let Some(record) = found.filter(|record| record.holder.as_deref() == Some(&self.me)) else { break };
            match self.api.replace(&self.name, &PostParams::default(), &self.object(&record, None)).await {
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
                Ok(Ownership::Other) => bail!("another one took the lease"),
                Ok(Ownership::Unknown) => anyhow::anyhow!("the lease was written meanwhile"),
                Err(error) => error,
            };
            tracing::warn!(event = "lease.not_renewed", error = chain(problem.as_ref()));
            if Instant::now() + self.period() >= end {
                return Err(problem.context("the lease could not be renewed"));
            }
            sleep(self.period()).await;
        }
    }

    /// One attempt to have it or to keep it.
    async fn attempt(&mut self) -> anyhow::Result<Ownership> {
        // At least a second: API servers are slower than short leases of tests.
        let patience = self.duration().div_f64(3.0).max(Duration::from_secs(1));
        timeout(patience, self.attempt_once()).await.with_context(|| format!("no answer within {patience:?}"))?
    }

    async fn attempt_once(&mut self) -> anyhow::Result<Ownership> {
        let now = Instant::now();
        let found = self.api.get_opt(&self.name).await.context("reading the lease")?;
        let record = match found {
            Some(object) => Some(Record::of(&object)),
            // Somebody deleted it. Who holds it does not know that yet, and works on until its next renewal.
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
        self.asked |= step != Step::Wait;
        let written = match step {
            Step::Wait => return Ok(Ownership::Other),
            Step::Create(record) => self.api.create(&params, &self.object(&record, Some(&self.me))).await,
            Step::Write(record) => self.api.replace(&self.name, &params, &self.object(&record, Some(&self.me))).await,
        };
        match written {
            Ok(object) => {
                self.seen = Some((Record::of(&object), now));
                // Counted from before it was sent: it may have been written late.
                self.renewed = Some(now);
                Ok(Ownership::Ours)
            }
            // Somebody was faster, be it a write of our own that was given up and came late.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.seen = None;
                Ok(Ownership::Unknown)
            }
            Err(error) => Err(error).context("writing the lease"),
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    fn period(&self) -> Duration {
        self.duration().div_f64(10.0)
    }

    /// The object that makes it ours, or nobody's; refused when it changed since `record` was read.
    fn object(&self, record: &Record, holder: Option<&str>) -> Object {
        let now = MicroTime(Timestamp::now());
        let same = record.holder.as_deref() == holder;
        Object {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
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
