//! What is wrong with a node: the agent's conditions, the signals that are not healthy, what the controller found, and
//! VnicAttachments that are not ready. Each cause is there once, with its next step.

use api::{AttachmentReason, Reason as _};
use command::page::Page;
use health::fleet::{CLOUD_AGENT_PLUGINS, NodeState, VNIC_ATTACHMENT};
use health::hardware::device::FaultyDevice;
use health::reason::Reason as AgentReason;
use health::report::NotMeasured;
use health::rules::Severity;
use health::summary::{Check, Summary};
use health::{Report, SignalState, Verdict, collectors};
use serde::Serialize;

use super::agent::{AgentCondition, AgentStatus};
use crate::answer::Style;
use crate::catalog::{self, AGENT_SILENT};
use crate::causes::{self, Cause};
use crate::table::since;

/// Something that is wrong, or not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The signal, or the condition's reason.
    pub name: String,
    /// Which object of several it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// A problem, or unknown.
    pub verdict: Verdict,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it keeps new pods from starting.
    pub blocks_pods: bool,
    pub message: String,
    /// The value with its evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// Why a problem is not measured any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<NotMeasured>,
    /// Which values are healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy: Option<String>,
    /// Since when, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_unix_millis: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
}

impl Finding {
    fn cause(&self) -> Cause<'_> {
        Cause { name: &self.name, blocks_pods: self.blocks_pods }
    }
}

/// Those of an agent's report, the worst first, with what the controller's leader adds.
pub(super) fn of_details(status: AgentStatus, report: Report, summary: Option<&Summary>) -> Vec<Finding> {
    let checks = summary.into_iter().flat_map(|summary| &summary.checks);
    let kept: Vec<&Check> = checks.filter(|check| is_of_leader(check, &status, &report)).collect();
    let of_leader: Vec<Finding> = kept.iter().flat_map(|check| of_check(check)).collect();
    let conditions = status.conditions.into_iter().map(of_condition);
    let is_kept = |name: &str| kept.iter().any(|check| check.name == name);
    let is_open = |state: &SignalState| match state.verdict {
        Verdict::Problem => true,
        Verdict::Unknown => !state.is_waiting && !is_kept(&state.signal),
        Verdict::Healthy | Verdict::NotApplicable => false,
    };
    let signals: Vec<Finding> = report.signals.into_iter().filter(is_open).flat_map(of_signal).collect();
    conditions.chain(signals).chain(of_leader).collect()
}

/// Whether the leader alone reports a check: what it found itself, and the problems of an agent that was restarted and has not
/// measured them since.
fn is_of_leader(check: &Check, status: &AgentStatus, report: &Report) -> bool {
    let is_unknown = |state: &SignalState| state.signal != check.name || state.verdict == Verdict::Unknown;
    let is_starting = || status.conditions.iter().any(|condition| condition.reason == AgentReason::Starting.as_str());
    let is_signal = || collectors::signal(&check.name).is_some();
    check.name == CLOUD_AGENT_PLUGINS.name
        || check.not_measured.is_some() && report.signals.iter().all(is_unknown) && (is_signal() || is_starting())
}

/// The signals that wait for a second sample by the report, or for the first one by the summary.
pub(super) fn waiting(report: Option<&Report>, summary: Option<&Summary>) -> Vec<String> {
    let states = || report.into_iter().flat_map(|report| &report.signals);
    let waiting = states().filter(|state| state.is_waiting).map(|state| &state.signal);
    let is_reported = |name: &String| {
        let checks = summary.into_iter().flat_map(|summary| &summary.checks);
        states().any(|state| state.signal == *name) || checks.into_iter().any(|check| check.name == *name)
    };
    let missing = summary.into_iter().flat_map(|summary| &summary.not_measured).filter(|name| !is_reported(name));
    waiting.chain(missing).cloned().collect()
}

/// Those of a summary, which has no values. A summary that is too old says nothing about now.
pub(super) fn of_summary(summary: &Summary, is_too_old: bool) -> Vec<Finding> {
    let of_before = |finding: Finding| {
        let message = format!("In the last answer: {}", finding.message);
        Finding { verdict: Verdict::Unknown, blocks_pods: false, message, ..finding }
    };
    let found = summary.checks.iter().flat_map(of_check);
    found.map(|finding| if is_too_old { of_before(finding) } else { finding }).collect()
}

/// The agent of a node does not answer: `error` says why.
pub(super) fn of_silence(node: &str, error: &str) -> Finding {
    Finding {
        name: AGENT_SILENT.to_owned(),
        subject: None,
        verdict: Verdict::Unknown,
        severity: Severity::Warning,
        blocks_pods: false,
        message: format!("The agent does not answer: {error}"),
        measured: None,
        not_measured: None,
        healthy: None,
        since_unix_millis: None,
        next_step: next_step(AGENT_SILENT, Verdict::Unknown).map(|step| step.replace(" NODE ", &format!(" {node} "))),
    }
}

/// The node in a word: the worst of its findings.
pub(super) fn state(findings: &[Finding]) -> NodeState {
    let problems = findings.iter().filter(|it| it.verdict == Verdict::Problem);
    let is_unknown = |it: &Finding| it.name == AGENT_SILENT || it.name == AgentReason::Starting.as_str();
    match problems.map(|it| it.severity).max() {
        Some(Severity::Critical) => NodeState::Critical,
        Some(Severity::Warning) => NodeState::Warning,
        None if findings.iter().any(is_unknown) => NodeState::Unknown,
        None => NodeState::Healthy,
    }
}

/// One for each device of a check.
pub(super) fn of_check(check: &Check) -> Vec<Finding> {
    check.per_device().iter().map(of_one_check).collect()
}

fn of_one_check(check: &Check) -> Finding {
    Finding {
        name: check.name.clone(),
        subject: check.subject.clone(),
        verdict: check.verdict,
        severity: check.severity,
        blocks_pods: blocks_pods(check),
        message: check.message.clone(),
        measured: None,
        not_measured: check.not_measured.clone(),
        healthy: None,
        since_unix_millis: Some(check.since_unix_millis),
        next_step: match check.subject.as_deref() {
            Some(subject) if subject.starts_with(VNIC_ATTACHMENT) => {
                AttachmentReason::from_word(&check.name).map(|reason| reason.to_do().to_owned())
            }
            _ => next_step(&check.name, check.verdict),
        },
    }
}

/// Whether no new pod can start because of a check. Of the agent's conditions, those that block are critical, and those that lose
/// traffic.
pub(crate) fn blocks_pods(check: &Check) -> bool {
    check.verdict == Verdict::Problem
        && check.severity == Severity::Critical
        && (causes::stops_pods(&check.name) || AgentReason::from_word(&check.name).is_some())
        && !loses_traffic(&check.name)
}

pub(super) fn show(page: &mut Page, findings: &[Finding], style: Style) {
    let (problems, unknown): (Vec<_>, Vec<_>) = findings.iter().partition(|it| it.verdict == Verdict::Problem);
    let (blocking, others): (Vec<_>, Vec<_>) = problems.into_iter().partition(|it| it.blocks_pods);
    let mut number = 0;
    for (title, group) in [("Why new pods cannot start:", blocking), ("Problems:", others), ("Not known:", unknown)] {
        if !group.is_empty() {
            page.line("");
            page.line(title);
        }
        for finding in group {
            number += 1;
            one(page, number, finding, style);
        }
    }
}

fn one(page: &mut Page, number: usize, finding: &Finding, style: Style) {
    let subject = finding.subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
    let severity = if finding.verdict == Verdict::Problem { format!(" ({})", finding.severity) } else { String::new() };
    let lasting = finding.since_unix_millis.map(|millis| format!(", for {}", since(millis, style))).unwrap_or_default();
    page.line(format_args!("{number:>3}. {}{subject}{severity}{lasting}", finding.name));
    let not_measured = finding.not_measured.as_ref();
    let not_measured = not_measured.map(|gap| format!("{}: {}", since(gap.since_unix_millis, style), gap.reason));
    let parts = [
        ("", Some(&finding.message).filter(|message| !message.is_empty())),
        ("Measured: ", finding.measured.as_ref()),
        ("Not measured for ", not_measured.as_ref()),
        ("Healthy: ", finding.healthy.as_ref()),
        ("Next: ", finding.next_step.as_ref()),
    ];
    for (label, text) in parts {
        if let Some(text) = text {
            page.line(format_args!("     {label}{text}"));
        }
    }
}

fn of_condition(condition: AgentCondition) -> Finding {
    let is_known = condition.reason != AgentReason::Starting.as_str();
    let blocks_pods = condition.severity == "blocking" && is_known;
    let is_critical = blocks_pods || loses_traffic(&condition.reason);
    Finding {
        next_step: next_step(&condition.reason, Verdict::Problem),
        name: condition.reason,
        subject: condition.subject,
        verdict: if is_known { Verdict::Problem } else { Verdict::Unknown },
        severity: if is_critical { Severity::Critical } else { Severity::Warning },
        blocks_pods,
        message: condition.message,
        measured: None,
        not_measured: None,
        healthy: None,
        since_unix_millis: condition.since_unix_millis,
    }
}

fn of_signal(mut state: SignalState) -> Vec<Finding> {
    let devices = std::mem::take(&mut state.devices);
    let finding = of_whole_signal(state);
    if devices.is_empty() || finding.verdict != Verdict::Problem {
        return vec![finding];
    }
    let of_device = |device: FaultyDevice| {
        let by_reason = device.reason.as_ref().and_then(|reason| next_step(reason, Verdict::Problem));
        Finding {
            message: device.sentence(&finding.message),
            measured: None,
            healthy: None,
            next_step: by_reason.or_else(|| finding.next_step.clone()),
            since_unix_millis: device.since_unix_millis.or(finding.since_unix_millis),
            subject: Some(device.address).filter(|address| !address.is_empty()),
            name: device.reason.unwrap_or_else(|| finding.name.clone()),
            ..finding.clone()
        }
    };
    devices.into_iter().map(of_device).collect()
}

fn of_whole_signal(state: SignalState) -> Finding {
    let value = state.value.map(|value| state.unit.show(value)).unwrap_or_default();
    let measured = match (value.as_str(), state.detail.as_str()) {
        ("", detail) => detail.to_owned(),
        (value, "") => value.to_owned(),
        (value, detail) => format!("{value} ({detail})"),
    };
    Finding {
        next_step: next_step(&state.signal, state.verdict),
        blocks_pods: state.verdict == Verdict::Problem && causes::stops_pods(&state.signal),
        name: state.signal,
        subject: None,
        verdict: state.verdict,
        severity: state.severity.unwrap_or_default(),
        message: state.message.unwrap_or_default(),
        measured: Some(measured).filter(|text| !text.is_empty()),
        not_measured: state.not_measured,
        healthy: state.bound,
        since_unix_millis: Some(state.since_unix_millis),
    }
}

/// Each cause once, with the worst severity that was found. Blocking ones first; of equal ones, the oldest, which may have caused
/// the others.
pub(super) fn distinct(mut findings: Vec<Finding>) -> Vec<Finding> {
    use std::cmp::Reverse;
    let all = findings.clone();
    let open = || all.iter().filter(|it| it.verdict == Verdict::Problem);
    findings.retain(|it| !causes::repeats(&it.name, &it.message, open().map(Finding::cause)));
    for finding in &mut findings {
        let cause = finding.cause();
        let repeated = open().filter(|it| causes::repeats(&it.name, &it.message, std::iter::once(cause)));
        finding.severity = repeated.map(|it| it.severity).fold(finding.severity, Severity::max);
    }
    // What keeps everything else from being known is first.
    let rank = |it: &Finding| (Reverse(it.blocks_pods), it.verdict, it.name != AGENT_SILENT);
    findings.sort_by_key(|it| (rank(it), Reverse(it.severity), it.since_unix_millis));
    findings
}

fn loses_traffic(reason: &str) -> bool {
    AgentReason::from_word(reason).is_some_and(AgentReason::loses_traffic)
}

fn next_step(name: &str, verdict: Verdict) -> Option<String> {
    catalog::next_step(name, verdict).filter(|text| *text != "-").map(str::to_owned)
}
