//! What the controller can request: the summary of the node, its details, other rules, probes of network tests, and
//! captures.

use std::sync::Arc;
use std::time::Instant;

use api::bundle::AGENT_BUNDLE_PATH;
use channel::{BODY_MAX, Handler, Reply, Request, SentReply};
use health::summary::poll::{NodeReport, PollQuery, RULES_PATH, SUMMARY_PATH};
use health::summary::{Check, VERSION};
use health::{Area, Report, Summary, Verdict, rules};
use nettest::probe::PROBE_PATH;
use resident::logging::chain;
use serde_json::json;
use stream::Chunks;
use tokio::sync::watch;
use tunables::document::{FILES_PATH, POLICY_PATH};

use crate::captures::Captures;
use crate::controller_channel::bundle_stream::BundleStream;
use crate::controller_channel::captures;
use crate::controller_channel::controller_rules::ControllerRules;
use crate::controller_channel::json_reply::body;
use crate::facts::condition::{Condition, Reason};
use crate::node_policy::PolicyDetails;
use crate::probes::ProbeHandler;
use crate::reconcile::kernel_limits::RepairGate;
use crate::report::status::Status;
use crate::report::status_server::StatusServer;
use crate::settings::Settings;
use crate::sources::host_units;

pub(super) struct Answers {
    pub(super) settings: Arc<Settings>,
    pub(super) status_server: Arc<StatusServer>,
    pub(super) gate: RepairGate,
    pub(super) node_report: watch::Sender<NodeReport>,
    pub(super) rules: ControllerRules,
    pub(super) probes: ProbeHandler,
    pub(super) bundle: BundleStream,
    pub(super) captures: Captures,
}

impl Handler for Answers {
    async fn handle(&self, request: Request) -> Reply {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match path {
            SUMMARY_PATH => {
                let PollQuery { may_repair, node } = PollQuery::read(query);
                self.gate.note(may_repair, Instant::now());
                self.node_report.send_modify(|known| known.update(node));
                let summary = self.summary();
                Reply { etag: Some(summary.etag()), ..body(&summary.bounded()) }
            }
            "/v1/node" => {
                let policy = self.status_server.agent.policies.details();
                details(self.status_server.current_status(), self.status_server.signals(), policy.as_ref())
            }
            RULES_PATH => match request.body {
                None => Reply::text(405, "rules are sent by POST\n"),
                Some(text) => match self.rules.replace(text).await {
                    Ok(()) => Reply::ok("{}"),
                    Err(error) => {
                        let (status, text) = error.answer();
                        tracing::warn!(event = "rules.refused", error = text.trim_end(), "the earlier rules stay");
                        Reply::text(status, &text)
                    }
                },
            },
            POLICY_PATH => match request.body {
                None => body(&self.status_server.agent.policies.answer()),
                Some(text) => self.take_policies(&text).await,
            },
            FILES_PATH => match request.body {
                None => Reply::text(405, "confirmations are sent by POST\n"),
                Some(text) => self.confirm_files(text.to_vec()).await,
            },
            PROBE_PATH => {
                let (status, body) = self.probes.answer(&request.body.unwrap_or_default()).await;
                Reply { status, ..Reply::ok(body) }
            }
            _ => captures::answer(&self.captures, path, request.body.as_deref()).unwrap_or_else(|| {
                let known =
                    "/v1/summary, /v1/node, /v1/rules, /v1/policy, /v1/files, /v1/probe, /v1/bundle and /v1/captures";
                Reply::text(404, &format!("not found; this agent knows {known}\n"))
            }),
        }
    }

    fn stream(&self, request: &Request) -> Option<Result<Chunks, Reply>> {
        if request.path == AGENT_BUNDLE_PATH {
            return Some(self.bundle.open());
        }
        if request.body.is_some() { None } else { captures::open(&self.captures, &request.path) }
    }

    fn replied(&self, reply: SentReply) {
        self.status_server.agent.policies.contact.note(reply);
    }
}

impl Answers {
    async fn take_policies(&self, text: &[u8]) -> Reply {
        let agent = &self.status_server.agent;
        let instance = agent.facts.borrow().instance.value.as_ref().map(|instance| instance.id.to_string());
        match agent.policies.receive(text, instance).await {
            Ok(answer) => body(&answer),
            Err(error) => {
                let (status, text) = error.answer();
                tracing::warn!(event = "policy.refused", error = text.trim_end(), "the earlier settings stay");
                Reply::text(status, &text)
            }
        }
    }

    async fn confirm_files(&self, text: Vec<u8>) -> Reply {
        match self.status_server.agent.policies.confirm_files(text).await {
            Ok(answer) => body(&answer),
            Err(error) => {
                let text = chain(&error);
                tracing::warn!(
                    event = "files.unconfirmed",
                    error = text,
                    "the change is rolled back without a confirmation"
                );
                Reply::text(error.status(), &format!("{text}\n"))
            }
        }
    }

    fn summary(&self) -> Summary {
        let Status { readiness, instance, .. } = self.status_server.current_status();
        let (instance, shape) = instance.map(|it| (it.id.to_string(), it.shape)).unzip();
        let summary = Summary {
            version: VERSION,
            node: self.settings.node_name.clone().unwrap_or_default(),
            instance,
            shape,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: Some(self.status_server.agent.boot.as_str().to_owned()),
            started_unix_millis: Some(self.status_server.agent.started_unix_millis),
            node_policy: Some(self.status_server.agent.policies.summary()),
            operation_units: host_units::of_operations(&self.settings.host_root),
            ready: readiness.ready,
            checks: readiness.conditions.iter().map(check).collect(),
            ..Summary::default()
        };
        summary.with(&self.status_server.signals())
    }
}

/// Everything about the node. What is too long for a reply goes: the last reconcile and the healthy signals.
fn details(mut status: Status, mut signals: Report, policy: Option<&PolicyDetails>) -> Reply {
    let whole = body(&json!({ "status": status, "signals": signals, "policy": policy }));
    if whole.body.len() <= BODY_MAX {
        return whole;
    }
    status.report = None;
    signals.signals.retain(|state| matches!(state.verdict, Verdict::Problem | Verdict::Unknown));
    let short = body(&json!({ "status": status, "signals": signals, "policy": policy, "shortened": true }));
    if short.body.len() <= BODY_MAX { short } else { Reply::text(500, "the details are longer than a reply\n") }
}

/// A condition as a check. An agent that has just started knows nothing yet.
fn check(condition: &Condition) -> Check {
    let is_known = condition.reason != Reason::Starting;
    Check {
        name: condition.reason.as_str().to_owned(),
        subject: condition.subject.clone(),
        area: Area::Network,
        verdict: if is_known { Verdict::Problem } else { Verdict::Unknown },
        severity: match condition.blocks() || condition.reason.loses_traffic() {
            true => rules::Severity::Critical,
            false => rules::Severity::Warning,
        },
        action: rules::Action::Report,
        message: condition.message.clone(),
        since_unix_millis: condition.since_unix_millis.unwrap_or_default(),
        not_measured: None,
        devices: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use resident::config::Layers;
    use serde_json::Value;
    use tokio::sync::mpsc;

    use super::*;
    use crate::fixture::agent;
    use crate::probes::ProbeEnvironment;

    fn answers(arguments: &[&str]) -> (Answers, watch::Receiver<NodeReport>) {
        let agent = agent(arguments);
        let (signals, previews) = (watch::channel(Report::default()).1, mpsc::channel(1).0);
        let (node_report, kept) = watch::channel(NodeReport::default());
        let answers = Answers {
            rules: ControllerRules::new(agent.settings.controller_rules()),
            bundle: BundleStream::new(agent.settings.clone(), Layers::default()),
            captures: Captures::new(agent.settings.clone(), Layers::default()),
            settings: agent.settings.clone(),
            status_server: Arc::new(StatusServer { agent, signals, previews }),
            gate: RepairGate::default(),
            node_report,
            probes: ProbeHandler::new(ProbeEnvironment::of_this_process()),
        };
        (answers, kept)
    }

    /// `kubectl oke-node node` shows each setting with its policy.
    #[tokio::test]
    async fn details_have_the_document_of_policies_and_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (answers, _) = answers(&[&format!("--data-dir={}", folder.path().display())]);
        let details = async || {
            let reply = answers.handle(Request::get("/v1/node")).await;
            serde_json::from_slice::<Value>(&reply.body).unwrap()["policy"].clone()
        };
        assert_eq!(details().await, Value::Null);
        let document = json!({ "version": 1, "revision": "d1", "cluster": "c",
            "policies": [{ "name": "web", "uid": "u", "revision": "r", "mode": "report" }],
            "sysctls": [{ "key": "vm.swappiness", "value": "10", "policy": 0 }] });
        let reply = answers.handle(Request::post("/v1/policy", document.to_string().into_bytes())).await;
        assert_eq!(reply.status, 200, "{:?}", String::from_utf8_lossy(&reply.body));
        let policy = details().await;
        assert_eq!(policy["document"]["sysctls"][0]["key"], "vm.swappiness");
        assert!(policy["answer"]["version"] == 1, "{policy}");
    }

    #[tokio::test]
    async fn report_about_the_node_is_kept_until_the_next_one() {
        let (answers, kept) = answers(&[]);
        for (path, memory, runtime) in [
            ("/v1/summary", None, None),
            ("/v1/summary?repairs=allow&allocatable=4096", Some(4096), None),
            ("/v1/summary?runtime=cri-o", Some(4096), Some("cri-o")),
            ("/v1/summary?allocatable=8192", Some(8192), Some("cri-o")),
        ] {
            assert_eq!(answers.handle(Request::get(path)).await.status, 200, "{path}");
            let expected =
                NodeReport { allocatable_memory: memory, runtime: runtime.map(str::to_owned), allocatable_gpus: None };
            assert_eq!(*kept.borrow(), expected, "{path}");
        }
    }

    #[test]
    fn condition_that_stops_pods_or_loses_their_traffic_is_critical() {
        let severity = |condition: Condition| check(&condition).severity;
        assert_eq!(severity(Condition::blocking(Reason::NoUsableAddress, "")), rules::Severity::Critical);
        assert_eq!(severity(Condition::degraded(Reason::RepairsUndone, "")), rules::Severity::Critical);
        assert_eq!(severity(Condition::degraded(Reason::PodLinkGone, "")), rules::Severity::Warning);
    }

    #[test]
    fn details_beyond_a_reply_lose_what_is_healthy() {
        let read = |verdicts: &[&str], length: usize| {
            let status = json!({ "agent": { "running": true, "version": "1", "uptimeSeconds": 1 }, "ready": true,
                "conditions": [], "sources": [], "report": { "cause": "timer", "unixMillis": 1, "micros": 1, "changes": [],
                    "conditions": [], "vnics": [], "usable": true } });
            let state = |verdict: &&str| {
                json!({ "signal": "pids", "verdict": verdict, "unit": "percent", "detail": "x".repeat(length),
                    "sampledUnixMillis": 1, "sinceUnixMillis": 1, "everySeconds": 60 })
            };
            let signals = json!({ "signals": verdicts.iter().map(state).collect::<Vec<_>>() });
            let reply =
                details(serde_json::from_value(status).unwrap(), serde_json::from_value(signals).unwrap(), None);
            assert!(reply.body.len() <= BODY_MAX);
            let value = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
            let left = value["signals"]["signals"].as_array().map(|left| left.len());
            (reply.status, left, value["status"]["report"].is_object(), value["shortened"] == true)
        };
        let all = ["healthy", "problem", "notApplicable", "unknown"];
        assert_eq!(read(&all, 1000), (200, Some(4), true, false));
        assert_eq!(read(&all, 25_000), (200, Some(2), false, true));
        assert_eq!(read(&all, 40_000), (500, None, false, false));
    }
}
