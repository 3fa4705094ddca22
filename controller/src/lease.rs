//! The lease: of several controllers one works. Whoever holds it stops at once when it cannot renew it, well before
//! another may take it.
//!
//! ```text
//!   renewed ├──── renewing, every tenth ────┤ 2/3: lost, the process ends   ├ 1: another one may take it
//! ```
//!
//! Nobody's clock is compared with another's: who waits measures by its own clock for how long the lease has not changed,
//! as client-go does. (kube-lease-manager compares wall clocks, and an attach that two controllers ask for is a VNIC too
//! many; hence our own.)

mod record;

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

/// A lease, held or not.
#[derive(Debug)]
pub struct Lease {
    api: Api<Object>,
    name: String,
    me: String,
    duration: Duration,
    /// The record as it was last read, and since when it is like that.
    seen: Option<(Record, Instant)>,
    /// When the last request that made or kept it ours was sent.
    renewed: Option<Instant>,
}

impl Lease {
    /// A lease that is not held yet.
    #[must_use]
    pub fn new(client: Client, settings: &LeaseSettings, me: String) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            name: settings.name.clone(),
            me,
            duration: settings.duration,
            seen: None,
            renewed: None,
        }
    }

    /// Waits until it is ours, for ever. `answered` is called whenever the API server has answered.
    pub async fn acquire(&mut self, answered: impl Fn()) {
        // What was said last is not said again.
        let mut told = None;
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {
                    answered();
                    let holder = self.seen.as_ref().and_then(|(record, _)| record.holder.clone());
                    if told != Some(Ok(holder.clone())) {
                        tracing::info!(event = "lease.waiting", holder, "another one has the lease");
                        told = Some(Ok(holder));
                    }
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if told != Some(Err(error.clone())) {
                        tracing::warn!(event = "lease.unreachable", error, "it is asked for for ever");
                        told = Some(Err(error));
                    }
                }
            }
            sleep(self.period()).await;
        }
    }

    /// Keeps it as long as that is possible. Comes back with why it is lost.
    pub async fn keep(&mut self) -> anyhow::Error {
        loop {
            sleep(self.period()).await;
            let Some(renewed) = self.renewed else { return anyhow::anyhow!("the lease was never held") };
            let end = renewed + self.duration.mul_f64(2.0 / 3.0);
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
        let Some((record, _)) = self.seen.take().filter(|(record, _)| record.holder.as_deref() == Some(&self.me))
        else {
            return;
        };
        let free = self.object(&record, None);
        let _ = timeout(self.period(), self.api.replace(&self.name, &PostParams::default(), &free)).await;
    }

    async fn renew_until(&mut self, end: Instant) -> anyhow::Result<()> {
        loop {
            let problem = match self.attempt().await {
                Ok(true) => return Ok(()),
                Ok(false) => bail!("another one took the lease"),
                Err(error) => error,
            };
            tracing::warn!(event = "lease.not_renewed", error = format!("{problem:#}"));
            if Instant::now() + self.period() >= end {
                return Err(problem.context("the lease could not be renewed"));
            }
            sleep(self.period()).await;
        }
    }

    /// One attempt to have it or to keep it: whether it is ours.
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        // At least a second: API servers are slower than short leases of tests.
        let patience = self.duration.div_f64(3.0).max(Duration::from_secs(1));
        timeout(patience, self.attempt_once()).await.with_context(|| format!("no answer within {patience:?}"))?
    }

    async fn attempt_once(&mut self) -> anyhow::Result<bool> {
        let now = Instant::now();
        let found = self.api.get_opt(&self.name).await.context("reading the lease")?;
        let record = found.map(|object| Record::of(&object));
        if let Some(record) = &record
            && self.seen.as_ref().is_none_or(|(before, _)| before != record)
        {
            self.seen = Some((record.clone(), now));
        }
        let unchanged = self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| now - *since);
        let params = PostParams::default();
        let written = match decide(record.as_ref(), unchanged, &self.me) {
            Step::Wait => return Ok(false),
            Step::Create => self.api.create(&params, &self.object(&Record::default(), Some(&self.me))).await,
            Step::Write(record) => self.api.replace(&self.name, &params, &self.object(&record, Some(&self.me))).await,
        };
        match written {
            Ok(object) => {
                self.seen = Some((Record::of(&object), now));
                // Counted from before it was sent: it may have been written late.
                self.renewed = Some(now);
                Ok(true)
            }
            // Somebody was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.seen = None;
                Ok(false)
            }
            Err(error) => Err(error).context("writing the lease"),
        }
    }

    fn period(&self) -> Duration {
        self.duration.div_f64(10.0)
    }

    /// The object that makes it ours, or nobody's; refused when it changed since `record` was read.
    fn object(&self, record: &Record, holder: Option<&str>) -> Object {
        let now = MicroTime(Timestamp::now());
        let same = record.holder.as_deref() == holder;
        let seconds = i32::try_from(self.duration.as_secs().max(1)).unwrap_or(i32::MAX);
        Object {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: record.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.unwrap_or_default().to_owned()),
                lease_duration_seconds: Some(seconds),
                acquire_time: if same { record.acquired.map(MicroTime) } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(record.transitions + i32::from(!same && holder.is_some())),
                ..LeaseSpec::default()
            }),
        }
    }
}
