//! Agents that speak the real protocol on loopback, and their Pods.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::bundle::AGENT_BUNDLE_PATH;
use api::capture::{AGENT_CAPTURES_PATH, CAPTURE_FILE_SUFFIX, CaptureProgress, CaptureRequest};
use api::{AGENT_CHANNEL_ANNOTATION, CONTROLLER_KEYS};
use channel::{Announcement, Fingerprint, Handler, Identity, Limits, Reply, Request, Share, TrustedKeys, serve};
use health::report::Verdict;
use health::rules::{Action, Severity, version};
use health::summary::poll::{PollQuery, RULES_PATH, SUMMARY_PATH};
use health::summary::{Check, NodePolicyState};
use health::{Area, Signal, Summary, collectors};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeCondition, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use nettest::probe::{PROBE_VERSION, ProbeReport, Tally};
use serde_json::json;
use stream::{Chunks, end, entry, pipe};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tunables::document::POLICY_PATH;
use tunables::{AnsweredPolicy, DocumentMode, ItemReport, ItemState, NodeAnswer, NodeDocument, PolicyState};

pub(crate) const NAMESPACE: &str = "oke-node-manager";
pub(crate) const NETWORK: &str = "oke.oraclecloud.com/NetworkReady";
pub(crate) const HOST: &str = "oke.oraclecloud.com/HostHealthy";

/// One listener may be many agents.
const SHARE: Share = Share { each_second: 100_000, each_open: 10_000, all_second: 100_000, all_open: 10_000 };
const LIMITS: Limits = Limits { passed: SHARE, strangers: SHARE, failed: SHARE };

/// One listener: the agent of one node, or of many that answer the same.
pub(crate) struct FakeAgent {
    port: u16,
    /// Open as long as the agent exists.
    listener: std::net::TcpListener,
    identity: Identity,
    trusted: TrustedControllers,
    state: Arc<AgentState>,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct AgentState {
    summary: Mutex<Summary>,
    answers: AtomicU64,
    /// Answers to requests that permit a repair.
    permits: AtomicU64,
    /// The Node's allocatable memory by the last request; 0 if it had none.
    allocatable_memory: AtomicU64,
    /// The rules that it received last.
    rules: Mutex<Option<String>>,
    /// The bundle or capture that it sends; none is an agent of an earlier release, or without a capture.
    bundle: Mutex<Option<FakeBundle>>,
    /// The uids of captures that it keeps.
    captures: Mutex<BTreeSet<String>>,
    /// The path of the last request for either.
    last_stream: Mutex<String>,
    /// The document that it received last, and the revisions that it ever had.
    document: Mutex<(NodeDocument, BTreeSet<String>)>,
    /// Whether a value of it fails.
    fails: AtomicBool,
}

/// What an agent sends as its bundle.
#[derive(Clone, Debug)]
pub(crate) enum FakeBundle {
    /// These bytes, and the end.
    Whole(Vec<u8>),
    /// These bytes, and then the connection breaks.
    Broken(Vec<u8>),
    /// So many entries of a megabyte.
    Megabytes(usize),
}

/// The keys that agents trust, as their kubelets mount them.
#[derive(Clone, Default)]
pub(crate) struct TrustedControllers(Arc<Mutex<BTreeSet<Fingerprint>>>);

impl Handler for AgentState {
    async fn handle(&self, request: Request) -> Reply {
        let summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match path {
            SUMMARY_PATH => {
                self.answers.fetch_add(1, Ordering::Relaxed);
                let PollQuery { may_repair, node } = PollQuery::read(query);
                self.permits.fetch_add(u64::from(may_repair), Ordering::Relaxed);
                self.allocatable_memory.store(node.allocatable_memory.unwrap_or_default(), Ordering::Relaxed);
                Reply { etag: Some(summary.etag()), ..Reply::ok(serde_json::to_vec(&summary).unwrap()) }
            }
            RULES_PATH => {
                let text = request.body.unwrap_or_default();
                let version = version(std::str::from_utf8(&text).unwrap());
                self.summary.lock().unwrap_or_else(PoisonError::into_inner).controller_rules = Some(version);
                *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = String::from_utf8(text.to_vec()).ok();
                Reply::ok("{}")
            }
            path if path.starts_with(AGENT_CAPTURES_PATH) => self.capture(path, request.body.as_deref()),
            POLICY_PATH => {
                if let Some(body) = request.body {
                    let document: NodeDocument = serde_json::from_slice(&body).unwrap();
                    let mut held = self.document.lock().unwrap();
                    held.1.extend(document.policies.iter().map(|policy| policy.revision.clone()));
                    held.0 = document;
                }
                let answer = self.policy_answer();
                self.summary.lock().unwrap_or_else(PoisonError::into_inner).node_policy = Some(state_of(&answer));
                Reply::ok(serde_json::to_vec(&answer).unwrap())
            }
            "/v1/node" => Reply::ok(json!({ "node": summary.node, "checks": summary.checks }).to_string()),
            "/v1/probe" => {
                let tally = Tally { sent: 5, received: 5, failure: None, micros: vec![100, 200, 300, 400, 500] };
                let report = ProbeReport { version: PROBE_VERSION, tally, ..ProbeReport::default() };
                Reply::ok(serde_json::to_vec(&report).unwrap())
            }
            _ => Reply::text(404, "not found\n"),
        }
    }

    fn stream(&self, request: &Request) -> Option<Result<Chunks, Reply>> {
        let is_capture = request.path.starts_with(AGENT_CAPTURES_PATH) && request.path.ends_with(CAPTURE_FILE_SUFFIX);
        if request.path != AGENT_BUNDLE_PATH && !is_capture {
            return None;
        }
        self.last_stream.lock().unwrap().clone_from(&request.path);
        let Some(bundle) = self.bundle.lock().unwrap().clone() else {
            return is_capture.then(|| Err(Reply::text(404, "none\n")));
        };
        let (sender, chunks) = pipe();
        let mut writer = sender.into_writer();
        std::thread::spawn(move || {
            match bundle {
                FakeBundle::Whole(bytes) => writer.write_all(&bytes)?,
                FakeBundle::Broken(bytes) => {
                    writer.write_all(&bytes)?;
                    return writer.flush();
                }
                FakeBundle::Megabytes(count) => {
                    for number in 0..count {
                        writer.write_all(&entry(&format!("bundle/{number}.txt"), &[b'x'; 1 << 20])?)?;
                    }
                    writer.write_all(&end())?;
                }
            }
            writer.finish()
        });
        Some(Ok(chunks))
    }
}

impl AgentState {
    /// A capture is complete at once.
    fn capture(&self, path: &str, body: Option<&[u8]>) -> Reply {
        let mut kept = self.captures.lock().unwrap();
        let Some(body) = body else {
            let uid = path.rsplit('/').next().unwrap_or_default();
            let progress = CaptureProgress { is_complete: true, packets: 5, bytes: 900, ..CaptureProgress::default() };
            return match kept.contains(uid) {
                true => Reply::ok(serde_json::to_vec(&progress).unwrap()),
                false => Reply::text(404, "none\n"),
            };
        };
        match serde_json::from_slice(body).unwrap() {
            CaptureRequest::Check(_) => {}
            CaptureRequest::Start(start) => {
                kept.insert(start.uid);
            }
            CaptureRequest::Remove { uid } => {
                kept.remove(&uid);
            }
        }
        Reply::ok("{}")
    }

    /// What it answers about its document.
    fn policy_answer(&self) -> NodeAnswer {
        let document = self.document.lock().unwrap().0.clone();
        let is_failing = self.fails.load(Ordering::Relaxed);
        let fails =
            |policy: usize| is_failing && document.policy(policy).is_some_and(|it| it.mode == DocumentMode::Apply);
        let policies = document.policies.iter().enumerate().map(|(index, policy)| AnsweredPolicy {
            name: policy.name.clone(),
            uid: policy.uid.clone(),
            revision: policy.revision.clone(),
            mode: policy.mode,
            state: if fails(index) { PolicyState::Failed } else { PolicyState::Applied },
            on_delete: policy.on_delete,
        });
        let items = document.sysctls.iter().filter_map(|entry| {
            let policy = document.policy(entry.policy)?;
            let state = match (fails(entry.policy), policy.mode) {
                (true, _) => ItemState::Failed,
                (false, DocumentMode::Report) => ItemState::Drifted,
                _ => return None,
            };
            let (item, desired) = (entry.key.clone(), entry.value.clone());
            let current = "60".to_owned();
            Some(ItemReport { item, policy: policy.name.clone(), state, current, desired, message: String::new() })
        });
        let (policies, items) = (policies.collect(), items.collect());
        let (document, baseline) = (document.revision.clone(), document.baseline.clone());
        NodeAnswer { version: 1, document, policies, items, baseline, ..NodeAnswer::default() }
    }
}

fn state_of(answer: &NodeAnswer) -> NodePolicyState {
    NodePolicyState { document: answer.document.clone(), answer: answer.digest(), files: false }
}

impl TrustedControllers {
    /// Follows the ConfigMap while it is in use.
    pub(crate) fn follow(client: Client) -> Self {
        let all = Self::default();
        all.begin(client);
        all
    }

    /// As when the kubelet mounts the ConfigMap late.
    pub(crate) fn begin(&self, client: Client) {
        let keys = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
            while let Some(keys) = keys.upgrade() {
                if let Ok(Some(map)) = maps.get_opt(CONTROLLER_KEYS).await {
                    let data = map.data.unwrap_or_default();
                    *keys.lock().unwrap() = data.values().filter_map(|key| key.parse().ok()).collect();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
}

impl FakeAgent {
    pub(crate) async fn start(node: &str, trusted: &TrustedControllers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap();
        let port = listener.local_addr().unwrap().port();
        let identity = Identity::generate().unwrap();
        let state = Arc::new(AgentState::default());
        *state.summary.lock().unwrap() =
            Summary { node: node.to_owned(), ready: true, controller_rules: Some(String::new()), ..Summary::default() };
        let mut agent = Self { port, listener, identity, trusted: trusted.clone(), state, task: None };
        agent.thaw();
        agent
    }

    /// One with its Pod on a node.
    pub(crate) async fn on(client: &Client, node: &str, trusted: &TrustedControllers) -> Self {
        let agent = Self::start(node, trusted).await;
        make_pod(client, node, &agent.annotation()).await;
        agent
    }

    pub(crate) fn thaw(&mut self) {
        self.freeze();
        let listener = TcpListener::from_std(self.listener.try_clone().unwrap()).unwrap();
        let (identity, handler, keys) = (self.identity.clone(), self.state.clone(), self.trusted.0.clone());
        let trusted: TrustedKeys = Arc::new(move || keys.lock().unwrap().clone());
        let task = tokio::spawn(async move { serve(listener, &identity, trusted, handler, LIMITS).await });
        self.task = Some(task.abort_handle());
    }

    /// Connections hang, as behind a broken network.
    pub(crate) fn freeze(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// A summary as long as that of a node with several findings, none of them a problem.
    pub(crate) fn has_usual_findings(&self) {
        let check = |signal: &Signal| Check {
            name: signal.name.to_owned(),
            subject: None,
            area: collectors::area(signal.name),
            verdict: Verdict::Unknown,
            severity: Severity::Warning,
            action: Action::Report,
            message: format!("{} is missing on the host or not mounted", signal.source),
            since_unix_millis: 1_790_000_000_000,
            not_measured: None,
            devices: Vec::new(),
        };
        let mut summary = self.state.summary.lock().unwrap();
        summary.instance = Some(format!("ocid1.instance.oc1.iad.{}", "a".repeat(60)));
        summary.shape = Some("BM.Standard.E5.192".to_owned());
        summary.checks = collectors::signals().take(7).map(check).collect();
        let length = serde_json::to_vec(&*summary).unwrap().len();
        assert!((1000..2000).contains(&length), "{length}");
    }

    /// Critical problems, by name and area.
    pub(crate) fn has(&self, problems: &[(&str, Area)]) {
        let check = |(name, area): &(&str, Area)| Check {
            name: (*name).to_owned(),
            subject: None,
            area: *area,
            verdict: Verdict::Problem,
            severity: Severity::Critical,
            action: Action::Report,
            message: format!("{name} is bad."),
            since_unix_millis: 1,
            not_measured: None,
            devices: Vec::new(),
        };
        let checks = &mut self.state.summary.lock().unwrap().checks;
        checks.retain(|check| check.verdict != Verdict::Problem);
        checks.splice(0..0, problems.iter().map(check));
    }

    /// Its node has another shape.
    pub(crate) fn has_shape(&self, shape: &str) {
        self.state.summary.lock().unwrap().shape = Some(shape.to_owned());
    }

    /// How often it sent its summary, or that it is unchanged.
    pub(crate) fn answers(&self) -> u64 {
        self.state.answers.load(Ordering::Relaxed)
    }

    /// A rule of its node repairs what is bad.
    pub(crate) fn wants_to_repair(&self) {
        self.has(&[("conntrack_use", Area::Network)]);
        self.state.summary.lock().unwrap().checks[0].action = Action::Repair;
    }

    /// How often it was permitted to repair.
    pub(crate) fn permits(&self) -> u64 {
        self.state.permits.load(Ordering::Relaxed)
    }

    /// The Node's allocatable memory by the last request; 0 if it had none.
    pub(crate) fn allocatable_memory(&self) -> u64 {
        self.state.allocatable_memory.load(Ordering::Relaxed)
    }

    /// The rules that it received last.
    pub(crate) fn rules(&self) -> Option<String> {
        self.state.rules.lock().unwrap().clone()
    }

    /// What it sends as the bundle of its node.
    pub(crate) fn has_bundle(&self, bundle: FakeBundle) {
        *self.state.bundle.lock().unwrap() = Some(bundle);
    }

    /// The uids of captures that it keeps.
    pub(crate) fn captures(&self) -> Vec<String> {
        self.state.captures.lock().unwrap().iter().cloned().collect()
    }

    /// The path of the last request for a bundle or a capture.
    pub(crate) fn last_stream(&self) -> String {
        self.state.last_stream.lock().unwrap().clone()
    }

    pub(crate) fn takes_policies(&self) {
        self.state.summary.lock().unwrap().node_policy = Some(state_of(&NodeAnswer::default()));
    }

    pub(crate) fn booted(&self, boot_id: &str) {
        self.state.summary.lock().unwrap().boot_id = Some(boot_id.to_owned());
    }

    /// Values of policies that are applied fail on its node from now on.
    pub(crate) fn fails_policies(&self) {
        self.state.fails.store(true, Ordering::Relaxed);
    }

    /// The value that it has of a kernel setting, if a policy applies it.
    pub(crate) fn applied(&self, key: &str) -> Option<String> {
        let document = self.state.document.lock().unwrap().0.clone();
        let is_applied = |policy: usize| document.policy(policy).is_some_and(|it| it.mode == DocumentMode::Apply);
        let entry = document.sysctls.iter().find(|entry| entry.key == key && is_applied(entry.policy));
        entry.map(|entry| entry.value.clone())
    }

    /// Whether it ever had a revision of a policy.
    pub(crate) fn ever_had(&self, revision: &str) -> bool {
        self.state.document.lock().unwrap().1.contains(revision)
    }

    /// It is of release 0.2.0, which takes no rules.
    pub(crate) fn takes_no_rules(&self) {
        self.state.summary.lock().unwrap().controller_rules = None;
    }

    pub(crate) fn annotation(&self) -> String {
        serde_json::to_string(&Announcement { port: self.port, key: self.identity.fingerprint() }).unwrap()
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.freeze();
    }
}

/// An agent's Pod on a node, as DaemonSet controller, kubelet and agent would leave it.
pub(crate) async fn make_pod(client: &Client, node: &str, annotation: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({
        "metadata": { "name": format!("oke-node-agent-{node}"), "labels": { "app.kubernetes.io/name": "oke-node-agent" },
            "annotations": { AGENT_CHANNEL_ANNOTATION: annotation },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "oke-node-agent", "uid": "d", "controller": true }] },
        "spec": { "nodeName": node, "serviceAccountName": "oke-node-agent", "automountServiceAccountToken": false,
            "containers": [{ "name": "agent", "image": "agent" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let address = json!({ "status": { "podIP": "127.0.0.1", "podIPs": [{ "ip": "127.0.0.1" }] } });
    let name = format!("oke-node-agent-{node}");
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(address)).await.unwrap();
}

/// A condition of a Node.
pub(crate) async fn condition(client: &Client, node: &str, kind: &str) -> Option<NodeCondition> {
    let node = Api::<Node>::all(client.clone()).get_opt(node).await.unwrap()?;
    node.status?.conditions?.into_iter().find(|condition| condition.type_ == kind)
}

/// Its status and reason.
pub(crate) async fn verdict(client: &Client, node: &str, kind: &str) -> Option<(String, String)> {
    condition(client, node, kind).await.map(|found| (found.status, found.reason.unwrap_or_default()))
}
