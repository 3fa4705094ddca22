//! Carries out steps. Each is one request about one object and can be repeated: after a partly applied plan, the next plan
//! continues. Holds no opinions.

use std::time::Duration;

use api::{FIELD_MANAGER, PROFILE_FINALIZER, PROFILE_LABEL, VnicAttachment, VnicProfile, VnicProfileStatus};
use futures::{StreamExt, stream};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use crate::attachment::apply::objects::{is, params, put};
use crate::profile::plan::step::{Profile, Step, Target};

/// Concurrent requests.
const AT_ONCE: usize = 8;
/// The deadline of one request.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why a step failed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The API server refused, or was not reached.
    #[error("the API server refused the request")]
    Refused(#[source] Box<kube::Error>),
    /// No answer in time.
    #[error("no answer from the API server within {DEADLINE:?}")]
    TimedOut,
}

impl ApplyError {
    /// The HTTP status of the API server's answer, if there was one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::TimedOut => None,
        }
    }
}

/// Carries out steps, independent of each other's failures, and starts none after `end`: the caller plans again to see
/// whether the rest is still needed. Reports each started step; after a success the object is as the step says, or being
/// deleted.
pub async fn apply<'s>(client: &Client, steps: &[&'s Step], end: Instant) -> Vec<(&'s Step, Result<(), ApplyError>)> {
    let api: Api<VnicAttachment> = Api::all(client.clone());
    let profiles: Api<VnicProfile> = Api::all(client.clone());
    let carried = steps.iter().copied().take_while(|_| Instant::now() < end).map(|step| {
        let (api, profiles) = (&api, &profiles);
        async move {
            tracing::info!(event = "profile.step", %step);
            (step, carry_out(api, profiles, step).await)
        }
    });
    stream::iter(carried).buffer_unordered(AT_ONCE).collect().await
}

/// Writes a profile's status.
///
/// # Errors
/// When the API server refuses it.
pub async fn write_status(client: &Client, profile: &str, status: &VnicProfileStatus) -> Result<(), ApplyError> {
    let api: Api<VnicProfile> = Api::all(client.clone());
    let name = json!({ "name": profile });
    let patch = json!({ "apiVersion": api_version(), "kind": "VnicProfile", "metadata": name, "status": status });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    in_time(api.patch_status(profile, &params, &Patch::Apply(patch))).await
}

async fn carry_out(api: &Api<VnicAttachment>, profiles: &Api<VnicProfile>, step: &Step) -> Result<(), ApplyError> {
    match step {
        Step::Make(stamp) => {
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            settled(in_time(api.create(&params, &stamp.object())).await)
        }
        Step::Change { stamp, .. } => {
            let spec = serde_json::to_value(stamp.spec())
                .map_err(|error| ApplyError::Refused(Box::new(kube::Error::SerdeError(error))))?;
            let patch = json_patch::Patch(vec![
                // An object without the label belongs to its user.
                is(["metadata", "labels", PROFILE_LABEL], stamp.profile.as_str()),
                put(["spec"], spec),
            ]);
            in_time(api.patch(&stamp.name, &params(), &Patch::Json::<()>(patch))).await
        }
        Step::Remove { object, .. } | Step::Replace { object, .. } => delete(api, object).await,
        Step::Guard(profile) => {
            let all = profile.finalizers.iter().map(String::as_str).chain([PROFILE_FINALIZER]);
            set_finalizers(profiles, profile, all.collect()).await
        }
        Step::LetGo(profile) => {
            let all = profile.finalizers.iter().map(String::as_str);
            set_finalizers(profiles, profile, all.filter(|finalizer| *finalizer != PROFILE_FINALIZER).collect()).await
        }
    }
}

/// Names the version that was read: another one may have other finalizers.
async fn set_finalizers(api: &Api<VnicProfile>, profile: &Profile, all: Vec<&str>) -> Result<(), ApplyError> {
    let metadata = json!({ "resourceVersion": profile.version, "finalizers": all });
    settled(in_time(api.patch(&profile.name, &params(), &Patch::Merge(json!({ "metadata": metadata })))).await)
}

/// Names the version that was read, because removing the label makes the object its user's. If it changed, the watch reports
/// it, and the next plan knows.
async fn delete(api: &Api<VnicAttachment>, object: &Target) -> Result<(), ApplyError> {
    let preconditions = Preconditions { uid: object.uid.clone(), resource_version: object.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    settled(in_time(api.delete(&object.name, &params)).await)
}

/// The object is gone, or already there, or another one by now: the next plan knows what to do.
fn settled(outcome: Result<(), ApplyError>) -> Result<(), ApplyError> {
    match outcome {
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        outcome => outcome,
    }
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> Result<(), ApplyError> {
    match timeout(DEADLINE, request).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(ApplyError::Refused(Box::new(error))),
        Err(_) => Err(ApplyError::TimedOut),
    }
}

fn api_version() -> String {
    format!("{}/{}", api::GROUP, api::VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::client::offline::client_with;

    #[tokio::test(start_paused = true)]
    async fn an_old_plan_stops_when_the_server_does_not_answer() {
        let client = client_with(|_, _| None);
        let guard = |number: u32| {
            Step::Guard(Profile { name: format!("profile-{number}"), version: None, finalizers: Vec::new() })
        };
        let steps: Vec<Step> = (0..10_000).map(guard).collect();
        let began = Instant::now();
        let steps: Vec<&Step> = steps.iter().collect();
        let outcomes = apply(&client, &steps, began + Duration::from_secs(5)).await;
        assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, Err(ApplyError::TimedOut))), "{outcomes:?}");
        assert_eq!((outcomes.len(), began.elapsed().as_secs()), (AT_ONCE, DEADLINE.as_secs()));
    }
}
