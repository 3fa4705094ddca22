//! Probe Pods send a probe from the pod network of a node. A Pod of our image gets the request in a variable, and leaves the
//! report in its termination message. What such a Pod may be is fixed by the policy in manifests/base/probe-pods.yaml.

use std::collections::BTreeSet;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Received;
use backoff::chance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use nettest::probe::{ProbeReport, ProbeRequest};
use resident::logging::chain;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use super::agents::{AgentError, read_report};
use crate::cluster::own_image::own_image;
use crate::cluster::request::send;
use crate::report::metrics::Metrics;

/// The namespace of probe Pods, as in manifests/base/namespace.yaml.
pub(crate) const PROBES_NAMESPACE: &str = "oke-node-manager-probes";
const LABEL: &str = "app.kubernetes.io/name";
const NAME: &str = "oke-network-probe";
/// The user of the probe, and the only group that may send echo requests.
const USER: u32 = 65_532;
/// Probe Pods at once, of all tests. The namespace's quota is higher.
const AT_ONCE: usize = 8;
/// After so many seconds the kubelet ends a probe Pod: 30 s for the probe, the rest for its start.
const ACTIVE_SECONDS: u32 = 90;
/// How long its result is waited for.
const RESULT_TIMEOUT: Duration = Duration::from_secs(100);
/// Between two reads of a Pod.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Between two searches for probe Pods whose test is gone.
const SWEEP: Duration = Duration::from_mins(1);

/// Creates, reads and deletes probe Pods.
pub(crate) struct ProbePods {
    client: Client,
    pods: Api<Received<Pod>>,
    /// The controller's own Pod, whose image the probe Pods have.
    namespace: String,
    name: String,
    metrics: Arc<Metrics>,
    free: Semaphore,
    /// The names of Pods whose results are waited for.
    waiting: Mutex<BTreeSet<String>>,
    created: Notify,
}

/// A Pod whose result is waited for: until the end, or until its test is deleted.
struct PodWait<'a> {
    pods: &'a ProbePods,
    name: String,
}

impl ProbePods {
    /// Those of the controller's Pod with this name and namespace.
    pub(crate) fn new(client: &Client, namespace: &str, name: String, metrics: Arc<Metrics>) -> Self {
        let pods = Api::namespaced(client.clone(), PROBES_NAMESPACE);
        Self {
            client: client.clone(),
            pods,
            namespace: namespace.to_owned(),
            name,
            metrics,
            free: Semaphore::new(AT_ONCE),
            waiting: Mutex::default(),
            created: Notify::new(),
        }
    }

    /// Sends a request by a new Pod on a node. A Pod that is left, because its test was deleted meanwhile, is an orphan.
    pub(crate) async fn probe(&self, node: &str, request: &ProbeRequest) -> Result<ProbeReport, AgentError> {
        let failed = |error: String| AgentError::Unreachable(error);
        let Ok(_turn) = self.free.acquire().await else { return Err(AgentError::Busy) };
        let image = own_image(&self.client, &self.namespace, &self.name).await.map_err(failed)?;
        let request = serde_json::to_string(request).map_err(|error| AgentError::Refused(error.to_string()))?;
        let name = format!("probe-{:08x}", (chance() * f64::from(u32::MAX)) as u32);
        let pod = template(&name, node, &image, &request).map_err(|error| AgentError::Refused(error.to_string()))?;
        self.waiting().insert(name.clone());
        let waiting = PodWait { pods: self, name };
        self.created.notify_one();
        let new: Api<Pod> = Api::namespaced(self.client.clone(), PROBES_NAMESPACE);
        let created = answered(new.create(&PostParams::default(), &pod)).await;
        self.metrics.wrote("probe_pod", created.is_ok());
        if let Err(error) = created {
            tracing::warn!(event = "probe_pod.create", node, error, "the pair is Unknown");
            return Err(failed(format!("create a probe Pod: {error}")));
        }
        let result = self.result(&waiting.name).await;
        self.delete(&waiting.name).await;
        result
    }

    async fn result(&self, name: &str) -> Result<ProbeReport, AgentError> {
        let mut last = "it did not start".to_owned();
        let read = async {
            loop {
                sleep(POLL_INTERVAL).await;
                match answered(self.pods.get(name)).await.map(|pod| of_received(&pod)) {
                    Ok(Break(result)) => return result,
                    Ok(Continue(reason)) => last = reason,
                    Err(error) if error == last => {}
                    Err(error) => {
                        tracing::warn!(event = "probe_pod.read", name, error, "retried");
                        last = error;
                    }
                }
            }
        };
        let result = timeout(RESULT_TIMEOUT, read).await;
        result.unwrap_or_else(|_| Err(AgentError::Unreachable(format!("no result within {RESULT_TIMEOUT:?}: {last}"))))
    }

    async fn delete(&self, name: &str) {
        let deleted = answered(self.pods.delete(name, &DeleteParams::default())).await;
        self.metrics.wrote("probe_pod_delete", deleted.is_ok());
        if let Err(error) = deleted {
            tracing::warn!(event = "probe_pod.delete", name, error, "retried as an orphan");
        }
    }

    /// Deletes probe Pods that no test waits for: those of a former leader, and of tests that were deleted. Never returns.
    pub(crate) async fn delete_orphans(&self) {
        loop {
            match self.delete_others().await {
                // Nothing is listed as long as no probe Pod is created.
                Ok(0) => self.created.notified().await,
                Ok(_) => {}
                Err(error) => tracing::warn!(event = "probe_pod.list", error, "retried"),
            }
            sleep(SWEEP).await;
        }
    }

    /// Returns how many probe Pods there were.
    async fn delete_others(&self) -> Result<usize, String> {
        let ours = ListParams::default().labels(&format!("{LABEL}={NAME}"));
        let found = answered(self.pods.list(&ours)).await?.items;
        for name in found.iter().map(|pod| pod.name_any()).filter(|name| !self.waiting().contains(name)) {
            self.delete(&name).await;
        }
        Ok(found.len())
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PodWait<'_> {
    fn drop(&mut self) {
        self.pods.waiting().remove(&self.name);
    }
}

/// The answer to a request, or why there is none.
async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    send(request).await.map_err(|error| chain(&error))
}

/// The same of a Pod as received: a kubelet writes its status.
fn of_received(pod: &Received<Pod>) -> ControlFlow<Result<ProbeReport, AgentError>, String> {
    match &pod.0 {
        Ok(pod) => outcome(pod),
        Err(unreadable) => {
            Break(Err(AgentError::Unreachable(format!("the probe Pod cannot be read: {}", unreadable.error))))
        }
    }
}

/// The result of a probe Pod that ended, or why it does not run yet.
fn outcome(pod: &Pod) -> ControlFlow<Result<ProbeReport, AgentError>, String> {
    let Some(status) = &pod.status else { return Continue("it has no status".to_owned()) };
    let state = status.container_statuses.iter().flatten().next().and_then(|container| container.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let waits = state.and_then(|state| state.waiting.as_ref());
    let message = |text: &Option<String>| text.clone().unwrap_or_default();
    match (ended, status.phase.as_deref()) {
        (Some(ended), _) if ended.exit_code == 0 => Break(read_report(message(&ended.message).as_bytes())),
        (Some(ended), _) if ended.message.is_some() => Break(Err(AgentError::Refused(message(&ended.message)))),
        // The kubelet did not start it, or ended it.
        (Some(_), _) | (None, Some("Failed" | "Succeeded")) => {
            let why = format!("the probe Pod ended: {} {}", message(&status.reason), message(&status.message));
            Break(Err(AgentError::Unreachable(why.trim_end().to_owned())))
        }
        _ => Continue(waits.map_or("it did not start".to_owned(), |waits| message(&waits.reason))),
    }
}

/// A probe Pod. The policy oke-network-probe refuses every other one.
fn template(name: &str, node: &str, image: &str, request: &str) -> serde_json::Result<Pod> {
    let group = format!("{USER} {USER}");
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { LABEL: NAME, "app.kubernetes.io/part-of": "oke-node-manager" } },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": ACTIVE_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "serviceAccountName": NAME,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            // A node that takes no other pods is tested, too.
            "tolerations": [{ "operator": "Exists" }],
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
                // Echo requests without a capability.
                "sysctls": [{ "name": "net.ipv4.ping_group_range", "value": group }],
            },
            "containers": [{
                "name": "probe",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/oke-node-agent"],
                "args": ["probe"],
                "env": [{ "name": "PROBE_REQUEST", "value": request }],
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn of(status: &Value) -> ControlFlow<Result<ProbeReport, AgentError>, String> {
        outcome(&serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap())
    }

    fn terminated(code: i32, message: Option<&str>) -> ControlFlow<Result<ProbeReport, AgentError>, String> {
        let terminated = json!({ "exitCode": code, "message": message });
        let container = json!({ "name": "probe", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "terminated": terminated } });
        of(&json!({ "phase": "Failed", "reason": "Evicted", "containerStatuses": [container] }))
    }

    #[test]
    fn status_of_a_probe_pod_becomes_a_result() {
        assert_eq!(of(&json!({ "phase": "Pending" })), Continue("it did not start".to_owned()));
        let sent = ProbeReport { version: nettest::probe::PROBE_VERSION, ..ProbeReport::default() };
        let report = serde_json::to_string(&sent).unwrap();
        assert_eq!(terminated(0, Some(&report)), Break(Ok(sent)));
        assert!(matches!(terminated(0, Some("{")), Break(Err(AgentError::Refused(_)))));
        assert_eq!(terminated(1, Some("why")), Break(Err(AgentError::Refused("why".to_owned()))));
        let killed = AgentError::Unreachable("the probe Pod ended: Evicted".to_owned());
        assert_eq!(terminated(137, None), Break(Err(killed)));
        let late = of(&json!({ "phase": "Failed", "reason": "DeadlineExceeded", "message": "too long" }));
        let why = "the probe Pod ended: DeadlineExceeded too long".to_owned();
        assert_eq!(late, Break(Err(AgentError::Unreachable(why))));
    }
}
