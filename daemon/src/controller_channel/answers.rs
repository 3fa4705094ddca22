//! What the controller can ask for: the summary of the node, its details, and probes of network tests.

use std::sync::Arc;
use std::time::Instant;

use api::probe::PROBE_PATH;
use channel::{BODY_MAX, Handler, Reply, Request};
use health::repair::REPAIRS_QUERY;
use health::summary::{Check, VERSION};
use health::{Area, Summary, Verdict, rules};
use serde::Serialize;
use serde_json::json;

use crate::probes::ProbeHandler;
use crate::reconcile::kernel_limits::RepairGate;
use crate::report::condition::{Condition, Reason};
use crate::report::status::Status;
use crate::report::status_server::Board;
use crate::settings::Settings;

/// The answers.
pub(super) struct Answers {
    pub(super) settings: Arc<Settings>,
    pub(super) board: Arc<Board>,
    pub(super) gate: RepairGate,
    pub(super) probes: ProbeHandler,
}

impl Handler for Answers {
    async fn handle(&self, request: Request) -> Reply {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match path {
            "/v1/summary" => {
                self.gate.note(query == REPAIRS_QUERY, Instant::now());
                let summary = self.summary();
                Reply { etag: Some(summary.etag()), ..body(&summary.bounded()) }
            }
            "/v1/node" => self.node(),
            PROBE_PATH => {
                let (status, body) = self.probes.answer(&request.body.unwrap_or_default()).await;
                Reply { status, ..Reply::ok(body) }
            }
            _ => Reply::text(404, "not found; this agent knows /v1/summary, /v1/node and /v1/probe\n"),
        }
    }
}

impl Answers {
    fn summary(&self) -> Summary {
        let Status { readiness, instance, .. } = self.board.current_status();
        let (instance, shape) = instance.map(|it| (it.id.to_string(), it.shape)).unzip();
        let summary = Summary {
            version: VERSION,
            node: self.settings.node_name.clone().unwrap_or_default(),
            instance,
            shape,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            ready: readiness.ready,
            checks: readiness.conditions.iter().map(check).collect(),
            ..Summary::default()
        };
        summary.with(&self.board.signals())
    }

    /// Everything about the node. What is too long for a reply goes: first the last reconcile, then the healthy signals.
    fn node(&self) -> Reply {
        let (mut status, mut signals) = (self.board.current_status(), self.board.signals());
        let whole = body(&json!({ "status": status, "signals": signals }));
        if whole.body.len() <= BODY_MAX {
            return whole;
        }
        status.report = None;
        signals.signals.retain(|state| matches!(state.verdict, Verdict::Problem | Verdict::Unknown));
        let short = body(&json!({ "status": status, "signals": signals, "shortened": true }));
        if short.body.len() <= BODY_MAX { short } else { Reply::text(500, "the details are longer than a reply\n") }
    }
}

fn body(value: &impl Serialize) -> Reply {
    serde_json::to_vec(value).map_or_else(|error| Reply::text(500, &format!("{error}\n")), Reply::ok)
}

/// A condition as a check. An agent that has just started knows nothing yet.
fn check(condition: &Condition) -> Check {
    let is_known = condition.reason != Reason::Starting;
    Check {
        name: condition.reason.word().to_owned(),
        subject: condition.subject.clone(),
        area: Area::Network,
        verdict: if is_known { Verdict::Problem } else { Verdict::Unknown },
        severity: if condition.blocks() { rules::Severity::Critical } else { rules::Severity::Warning },
        action: rules::Action::Report,
        message: condition.message.clone(),
        since_unix_millis: condition.since_unix_millis.unwrap_or_default(),
    }
}
