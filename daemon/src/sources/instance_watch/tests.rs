//! How a lost watch becomes an age, and when it becomes an error.

use std::fs;

use api::NativePodNetwork;
use kube::api::DynamicObject;
use serde_json::json;

use super::*;
use crate::fixture::npn;
use crate::sources::cached_copy::CachedAnswer;
use crate::sources::npn::OwnNpn;

type State = WatchState<Option<NativePodNetwork>>;
type CurrentState = (Option<Option<NativePodNetwork>>, Option<Duration>, Option<String>);

fn current(state: &State, now: Instant) -> CurrentState {
    let npn = state.clone().current(now);
    (npn.value.clone(), npn.age(now), npn.error)
}

fn listed(value: Option<NativePodNetwork>) -> ListResult<Option<NativePodNetwork>> {
    ListResult { value: Some(value), document: None, unreadable: None }
}

fn current_state(value: Option<NativePodNetwork>, age: Duration, error: Option<&str>) -> CurrentState {
    (Some(value), Some(age), error.map(str::to_owned))
}

fn success() -> Option<NativePodNetwork> {
    Some(npn("SUCCESS"))
}

fn failed(error: &str) -> WatchEnd {
    WatchEnd::Failed(error.to_owned())
}

/// A watch whose last byte came now, and this moment.
fn activity() -> (WatchActivity, Instant) {
    let activity = WatchActivity::begin();
    let begun = activity.last_byte().into_std();
    (activity, begun)
}

#[test]
fn answer_is_as_old_as_the_last_byte_and_lost_watch_an_error_once_stale() {
    let (mut state, (open, begun)) = (State::default(), activity());
    assert!(current(&state, begun).2.is_some_and(|error| error.contains("not answered")));
    state.observe(listed(success()), open);
    let second = Duration::from_secs(1);
    assert_eq!(current(&state, begun + second), current_state(success(), second, None), "nothing arrived since");
    state.lose(&failed("refused"));
    state.lose(&failed("still refused"));
    assert_eq!(current(&state, begun + STALE), current_state(success(), STALE, None));
    let older = STALE + second;
    assert_eq!(current(&state, begun + older), current_state(success(), older, Some("still refused")));
    let (open, again) = activity();
    state.observe(listed(success()), open);
    assert_eq!(current(&state, again), current_state(success(), Duration::ZERO, None));
}

#[test]
fn refusal_is_an_error_sooner_than_an_outage() {
    let (mut state, (open, begun)) = (State::default(), activity());
    state.observe(listed(success()), open);
    state.lose(&WatchEnd::Refused("Unauthorized".to_owned()));
    assert_eq!(current(&state, begun + REFUSED), current_state(success(), REFUSED, None));
    let older = REFUSED + Duration::from_secs(1);
    assert_eq!(current(&state, begun + older), current_state(success(), older, Some("Unauthorized")));
    state.lose(&failed("connection refused"));
    assert_eq!(current(&state, begun + older).2, None, "an outage");
}

#[test]
fn unreadable_object_is_an_error_immediately_and_after_watch_loss() {
    let (mut state, (open, begun)) = (State::default(), activity());
    state.observe(listed(None), open.clone());
    let unreadable = ListResult { value: None, document: None, unreadable: Some("spec.id is missing".into()) };
    state.observe(unreadable, open);
    state.lose(&failed("refused"));
    assert_eq!(current(&state, begun), current_state(None, Duration::ZERO, Some("spec.id is missing")));
}

#[test]
fn unknown_kind_takes_no_object_away() {
    let folder = tempfile::tempdir().unwrap();
    let (watch, unknown) = (watch(folder.path()), || WatchEnd::UnknownKind("NativePodNetwork"));
    let observer = observer(&watch);
    assert!(observer.lose(&unknown()).is_some() && observer.lose(&unknown()).is_some());
    assert_eq!(watch.state.borrow().known.value, Some(None));
    observer.observe(watched(object(INSTANCE)));
    assert!(observer.lose(&unknown()).is_none() && observer.lose(&WatchEnd::Failed(String::new())).is_none());
    assert!(observer.lose(&unknown()).is_none());
    assert!(watch.state.borrow().known.value.as_ref().unwrap().is_some());
}

#[tokio::test]
async fn refusal_is_news_and_an_outage_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for (end, is_news) in [(WatchEnd::Refused("Forbidden".to_owned()), true), (failed("timed out"), false)] {
        let observer = observer(&watch(folder.path()));
        observer.observe(watched(object(INSTANCE)));
        observer.changed.notified().await;
        observer.lose(&end);
        let news = tokio::time::timeout(Duration::from_millis(1), observer.changed.notified()).await;
        assert_eq!(news.is_ok(), is_news, "{end}");
    }
}

#[test]
fn failure_without_any_answer_is_the_error() {
    let mut state = State::default();
    state.lose(&failed("forbidden"));
    assert_eq!(current(&state, Instant::now()), (None, None, Some("forbidden".into())));
}

const INSTANCE: &str = "ocid1.instance.oc1.iad.a";

fn observer(watch: &InstanceWatch<OwnNpn>) -> InstanceObserver<OwnNpn> {
    let (instance, changed) = (INSTANCE.parse().unwrap(), Arc::default());
    InstanceObserver { instance, state: watch.state.clone(), changed }
}

fn object(instance: &str) -> Vec<DynamicObject> {
    let object = json!({
        "apiVersion": "oci.oraclecloud.com/v1beta1", "kind": "NativePodNetwork",
        "metadata": { "name": "a", "managedFields": [] }, "spec": { "id": instance },
    });
    vec![serde_json::from_value(object).unwrap()]
}

fn watched(objects: Vec<DynamicObject>) -> WatchedObjects<DynamicObject> {
    WatchedObjects { objects, activity: WatchActivity::begin() }
}

fn watch(folder: &std::path::Path) -> InstanceWatch<OwnNpn> {
    InstanceWatch::new(CachedCopy::new(folder, "copy.json"), Arc::default()).0
}

#[tokio::test(start_paused = true)]
async fn next_agent_starts_with_the_copy_of_the_last_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (mut before, instance) = (watch(folder.path()), INSTANCE.parse().unwrap());
    before.store_copy().unwrap();
    assert!(!before.copy.path().exists(), "there is no answer yet");
    observer(&before).observe(watched(object(INSTANCE)));
    before.store_copy().unwrap();
    // An object of another instance is an error and does not replace it.
    observer(&before).observe(watched(object("ocid1.instance.oc1.iad.b")));
    before.store_copy().unwrap();
    let copy: CachedAnswer<serde_json::Value> = before.copy.read().unwrap().unwrap();
    assert_eq!(copy.value["metadata"], json!({ "name": "a" }));

    let mut next = watch(folder.path());
    let known = next.current(&instance, Duration::from_millis(1500)).await;
    assert_eq!((known.value.unwrap().unwrap().instance, known.error), (instance.clone(), None));
    observer(&next).observe(watched(Vec::new()));
    next.store_copy().unwrap();
    assert!(!next.copy.path().exists(), "there is no object any more");

    fs::write(next.copy.path(), r#"{"version": 1,"#).unwrap();
    assert_eq!(
        watch(folder.path()).current(&instance, Duration::from_millis(1500)).await.value,
        None,
        "a damaged copy is none"
    );
}
