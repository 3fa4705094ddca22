//! Carries out steps. Each is one request about one object and can be repeated: after a partly applied plan, the next plan
//! continues. Holds no opinions.

use api::{FIELD_MANAGER, PROFILE_FINALIZER, PROFILE_LABEL, VnicAttachment, VnicProfile, VnicProfileStatus};
use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PartialObjectMetaExt as _, Patch, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::object_writes;
use crate::cluster::request::{RequestError, is, params, put, send, settled};
use crate::profile::plan::step::{Profile, Step, Target};

const AT_ONCE: usize = 8;

/// Carries out steps, independent of each other's failures, and starts none after `end`: the caller plans again to see
/// whether the rest is still needed. Reports each started step; after a success the object is as the step says, or being
/// deleted.
pub async fn apply<'s>(client: &Client, steps: &[&'s Step], end: Instant) -> Vec<(&'s Step, Result<(), RequestError>)> {
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
pub async fn write_status(client: &Client, profile: &str, status: &VnicProfileStatus) -> Result<(), RequestError> {
    let metadata = ObjectMeta { name: Some(profile.to_owned()), ..ObjectMeta::default() };
    let object = metadata.into_request_partial::<VnicProfile>();
    object_writes::write_status(client, &object, status, None).await.map(drop)
}

async fn carry_out(api: &Api<VnicAttachment>, profiles: &Api<VnicProfile>, step: &Step) -> Result<(), RequestError> {
    match step {
        Step::Create(stamp) => {
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            settled(send(api.create(&params, &stamp.object())).await)
        }
        Step::Update { stamp, .. } => {
            let spec = serde_json::to_value(stamp.spec()).map_err(|error| Box::new(kube::Error::SerdeError(error)))?;
            let patch = json_patch::Patch(vec![
                // An object without the label belongs to its user.
                is(["metadata", "labels", PROFILE_LABEL], stamp.profile.as_str()),
                put(["spec"], spec),
            ]);
            send(api.patch(&stamp.name, &params(), &Patch::Json::<()>(patch))).await.map(drop)
        }
        Step::Delete { object, .. } | Step::Replace { object, .. } => delete(api, object).await,
        Step::AddFinalizer(profile) => {
            let all = profile.finalizers.iter().map(String::as_str).chain([PROFILE_FINALIZER]);
            set_finalizers(profiles, profile, all.collect()).await
        }
        Step::RemoveFinalizer(profile) => {
            // The watch may not have reported an object that was just created: without the profile, nothing would remove it.
            let labeled = ListParams::default().labels(&format!("{PROFILE_LABEL}={}", profile.name));
            let (all, prefix) = (send(api.list_metadata(&labeled)).await?, format!("{}.", profile.name));
            if all.iter().any(|object| object.name_any().starts_with(&prefix)) {
                return Ok(());
            }
            let all = profile.finalizers.iter().map(String::as_str);
            set_finalizers(profiles, profile, all.filter(|finalizer| *finalizer != PROFILE_FINALIZER).collect()).await
        }
    }
}

/// Names the version that was read: another one may have other finalizers.
async fn set_finalizers(api: &Api<VnicProfile>, profile: &Profile, all: Vec<&str>) -> Result<(), RequestError> {
    let metadata = json!({ "resourceVersion": profile.version, "finalizers": all });
    settled(send(api.patch(&profile.name, &params(), &Patch::Merge(json!({ "metadata": metadata })))).await)
}

/// Names the version that was read, because removing the label makes the object its user's. If it changed, the watch reports
/// it, and the next plan knows.
async fn delete(api: &Api<VnicAttachment>, object: &Target) -> Result<(), RequestError> {
    let preconditions = Preconditions { uid: object.uid.clone(), resource_version: object.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    settled(send(api.delete(&object.name, &params)).await)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::cluster::client::offline::{client_with, json};
    use crate::cluster::request::DEADLINE;

    #[tokio::test(start_paused = true)]
    async fn an_old_plan_stops_when_the_server_does_not_answer() {
        let client = client_with(|_, _| None);
        let guard = |number: u32| {
            Step::AddFinalizer(Profile { name: format!("profile-{number}"), version: None, finalizers: Vec::new() })
        };
        let steps: Vec<Step> = (0..10_000).map(guard).collect();
        let began = Instant::now();
        let steps: Vec<&Step> = steps.iter().collect();
        let outcomes = apply(&client, &steps, began + Duration::from_secs(5)).await;
        assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, Err(RequestError::TimedOut))), "{outcomes:?}");
        assert_eq!((outcomes.len(), began.elapsed().as_secs()), (AT_ONCE, DEADLINE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn profile_keeps_its_finalizer_while_it_has_objects() {
        for (items, patches) in [("[]", 1), (r#"[{"metadata":{"name":"p.a"}}]"#, 0)] {
            let patched = Arc::new(AtomicUsize::new(0));
            let list = format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":{items}}}"#);
            let client = client_with({
                let patched = patched.clone();
                move |head, _| {
                    if head.method == "GET" {
                        return Some(json(200, list.clone()));
                    }
                    patched.fetch_add(1, Ordering::SeqCst);
                    Some(json(409, r#"{"kind":"Status","code":409}"#.to_owned()))
                }
            });
            let step = Step::RemoveFinalizer(Profile { name: "p".to_owned(), version: None, finalizers: Vec::new() });
            let outcomes = apply(&client, &[&step], Instant::now() + Duration::from_secs(5)).await;
            assert!(matches!(outcomes[..], [(_, Ok(()))]), "{outcomes:?}");
            assert_eq!(patched.load(Ordering::SeqCst), patches, "{items}");
        }
    }
}
