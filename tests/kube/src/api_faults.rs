//! Faults of a real API server: 410 Gone after compaction, 429 by priority and fairness.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::StreamBody;
use hyper::StatusCode;
use hyper::body::{Bytes, Frame};
use hyper::ext::on_informational;
use hyper::header::{CONTENT_TYPE, EXPECT};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use kube::client::ConfigExt;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::apply::apply_object;
use anyhow::{Context, Result, anyhow};

/// On a busy machine, too.
const OCCUPIED_WITHIN: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const THROTTLED: &str = "kube-harness-throttled";

/// Moves the cluster's revision on, so that what was read before is old.
pub(crate) async fn move_on(client: &Client) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let metadata = ObjectMeta { generate_name: Some("move-on-".into()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, data: Some(BTreeMap::new()), ..ConfigMap::default() };
    let made = maps.create(&PostParams::default(), &map).await.with_context(|| "create a ConfigMap".to_owned())?;
    let name = made.metadata.name.unwrap_or_default();
    maps.delete(&name, &DeleteParams::default()).await.with_context(|| format!("delete ConfigMap {name}"))?;
    Ok(())
}

/// The user whose one request, which never ends, takes the only seat.
pub(crate) const OCCUPIER: &str = "kube-harness-occupier";

/// As long as this lives, every request of a user is refused with 429. Its priority level has no queue and no seats, and the test
/// itself uses the one request that such a level lets through.
#[derive(Debug)]
pub(crate) struct Throttle {
    occupation: JoinHandle<()>,
}

impl Throttle {
    /// Of `user`; `occupier` is the configuration of [`OCCUPIER`].
    pub(crate) async fn of(user: &str, admin: &Client, occupier: kube::Config) -> Result<Self> {
        for object in [may_do_anything(), level(), flow(user)] {
            apply_object(admin, object).await?;
        }
        let levels: Api<PriorityLevelConfiguration> = Api::all(admin.clone());
        let level = levels.get(THROTTLED).await.with_context(|| format!("read {THROTTLED}"))?.metadata.uid;
        let client = Client::try_from(occupier.clone()).with_context(|| "make a client".to_owned())?;
        let deadline = Instant::now() + OCCUPIED_WITHIN;
        let until = async |what: &str, so: &dyn Fn(&Answer) -> bool| {
            while !answer(&client).await.is_some_and(|answer| so(&answer)) {
                if Instant::now() > deadline {
                    return Err(anyhow!("the requests of {user} are {what}"));
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        // The server takes the objects up a moment after they were made. A request of before would sit elsewhere, and for long.
        until("of another priority level", &|answer| answer.level == level).await?;
        let (occupied, mut is_occupied) = watch::channel(false);
        let occupation = Self { occupation: tokio::spawn(occupy(occupier, occupied)) };
        // The holder of the only seat, the user too, has other requests refused: a refusal alone proves nothing.
        let within = tokio::time::timeout_at(deadline.into(), is_occupied.wait_for(|it| *it));
        if !matches!(within.await, Ok(Ok(_))) {
            return Err(anyhow!("the only seat was not to be had"));
        }
        until("still served", &|answer| answer.code == StatusCode::TOO_MANY_REQUESTS).await?;
        Ok(occupation)
    }

    pub(crate) async fn end(self, admin: &Client) -> Result<()> {
        self.occupation.abort();
        let doing = || format!("delete {THROTTLED}");
        let flows: Api<FlowSchema> = Api::all(admin.clone());
        flows.delete(THROTTLED, &DeleteParams::default()).await.with_context(doing)?;
        let levels: Api<PriorityLevelConfiguration> = Api::all(admin.clone());
        levels.delete(THROTTLED, &DeleteParams::default()).await.with_context(doing)?;
        Ok(())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.occupation.abort();
    }
}

/// Posts an object that never comes, again and again: the server gives up waiting after ten minutes. Tells when it has a seat,
/// which is when the server says that it waits for the object.
async fn occupy(config: kube::Config, sits: watch::Sender<bool>) {
    let sits = Arc::new(sits);
    let Ok(connector) = config.rustls_https_connector() else { return };
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let uri = format!("{}api/v1/namespaces/default/configmaps", config.cluster_url);
    loop {
        let body = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let post = hyper::Request::post(&uri).header(CONTENT_TYPE, "application/json").header(EXPECT, "100-continue");
        let Ok(mut post) = post.body(body) else { return };
        let sits = Arc::clone(&sits);
        on_informational(&mut post, move |answer| {
            sits.send_replace(answer.status() == StatusCode::CONTINUE);
        });
        let _ = client.request(post).await;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// What the server says to a request of the occupier's.
struct Answer {
    code: StatusCode,
    /// The UID of the priority level that the request is of.
    level: Option<String>,
}

async fn answer(client: &Client) -> Option<Answer> {
    let request = hyper::Request::get("/version").body(kube::client::Body::empty()).ok()?;
    let response = client.send(request).await.ok()?;
    let level = response.headers().get("x-kubernetes-pf-prioritylevel-uid").and_then(|uid| uid.to_str().ok());
    Some(Answer { code: response.status(), level: level.map(str::to_owned) })
}

/// A request is seated before it is authorized: without rights it would not sit long.
fn may_do_anything() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": OCCUPIER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OCCUPIER }],
    })
}

fn level() -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": THROTTLED },
        "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": { "type": "Reject" },
        }},
    })
}

fn flow(user: &str) -> Value {
    let subject = match user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => {
            json!({ "kind": "ServiceAccount", "serviceAccount": { "namespace": namespace, "name": name } })
        }
        None => json!({ "kind": "User", "user": { "name": user } }),
    };
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": { "name": THROTTLED },
        "spec": {
            "priorityLevelConfiguration": { "name": THROTTLED },
            "matchingPrecedence": 2, // 1 is the administrators' exemption
            "rules": [{
                "subjects": [subject, { "kind": "User", "user": { "name": OCCUPIER } }],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
                }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }],
        },
    })
}
