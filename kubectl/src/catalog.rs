//! What this program knows offline: each word of signals, rules, error codes, conditions and reasons, from the tables that
//! the agent, the controller and the documents have, too.

#[cfg(test)]
mod tests;

use api::{AttachmentReason, PolicyReason, ProfileReason, TaskReason};
use health::collector::{Area, Signal};
use health::collectors;
use health::fleet::{AGENT_ACCOUNT_MISSING, NODE_NOT_READY, controller_signal_healthy};
use health::hardware::device::{self, FaultyDevice};
use health::hardware::messages::{Advice, catalogue};
use health::reason::Reason as AgentReason;
use health::rules::{Rule, Rules};
use health::{Verdict, summary};
use serde::Serialize;

/// What to do about a signal that cannot be measured.
const UNKNOWN: &str = "Check what the measurement names. docs/privileges.md lists what each collector reads. The node itself may be healthy.";
/// The page of the plugins' error codes.
const ERRORS: &str = include_str!("../../docs/errors.md");
/// The reason where an agent does not answer, and what to do.
pub(crate) const AGENT_SILENT: &str = "AgentSilent";
const AGENT_SILENT_STEP: &str = "Run `kubectl -n oke-node-manager get pods -o wide`. If no agent runs on the node, `kubectl -n oke-node-manager describe daemonset -l app.kubernetes.io/name=oke-node-agent` says why. If one runs, let the controller's nodes reach TCP port 9810 (CHANNEL_PORT) of the node: check the node's firewall, and the security lists and groups; `kubectl oke-node nettest CONTROLLER-NODE NODE --port 9810` shows where the packets are lost (CONTROLLER-NODE is a node with a pod of oke-node-controller).";
const NODE_NOT_READY_STEP: &str = "Read the message, which the kubelet wrote. If it names the runtime, run `systemctl restart crio` (or `containerd`) on the node. If the kubelet stopped posting, check that the node reaches the API server, and run `systemctl restart kubelet`. `journalctl -u kubelet -u crio -u containerd` says why it stopped.";
const AGENT_ACCOUNT_STEP: &str = "Apply the manifests again, which create the ServiceAccount: `kubectl apply --server-side -k` with your overlay (with the chart: `helm upgrade`). Then replace the agents, whose tokens are of the deleted one: `kubectl -n oke-node-manager rollout restart daemonset -l app.kubernetes.io/name=oke-node-agent`.";
/// The controller's Events about what a Node requests: what each means, and what to do.
const REQUESTS: &[(&str, &str, &str)] = &[
    (
        "InvalidVnicsAnnotation",
        "The Node's annotation oke.oraclecloud.com/vnics is not a list of names. Its VNICs stay as they are.",
        "Correct it: `kubectl annotate node NODE oke.oraclecloud.com/vnics=NAME,NAME --overwrite`.",
    ),
    (
        "UnknownVnicProfile",
        "The Node's annotation oke.oraclecloud.com/vnics names a VnicProfile that does not exist.",
        "Run `kubectl get vnicprofiles` to see the names. Then correct the annotation: `kubectl annotate node NODE oke.oraclecloud.com/vnics=NAME --overwrite`. Or create the VnicProfile.",
    ),
    (
        "VnicProfileNotAllowed",
        "The Node's annotation names a VnicProfile that takes no requests by annotation.",
        "Set allowNodeAnnotation of the VnicProfile to true, or remove its name from the annotation oke.oraclecloud.com/vnics.",
    ),
    (
        "VnicProfileNotForNode",
        "The Node's annotation names a VnicProfile whose nodePools or nodeSelector do not match the Node.",
        "Add the node pool of the Node to the VnicProfile, or the missing label to the Node (`kubectl label node NODE KEY=VALUE`), or remove the name from the annotation oke.oraclecloud.com/vnics.",
    ),
    (
        "NodeIsNoInstance",
        "A VnicProfile selects the Node, whose providerID names no OCI instance.",
        "Exclude the Node from the VnicProfile's nodeSelector, or correct the Node's providerID.",
    ),
    (
        "InstanceClaimedTwice",
        "A VnicProfile selects the Node, and an older Node has the same providerID.",
        "Delete the Node that is not this instance: `kubectl delete node NODE`.",
    ),
    (
        "NodePoolMismatch",
        "The Node's annotation oci.oraclecloud.com/node-pool-id names a node pool of a VnicProfile, and the metadata of its instance (oke-pool-id) does not. The Node gets none of the profile's VNICs.",
        "Find out which program wrote the annotation: the kubelet of the Node can. If the instance is of the node pool, correct its metadata, or replace the node. The controller reads the metadata again every 15 minutes.",
    ),
    (
        "NodePoolUnreadable",
        "A VnicProfile selects the Node by its node pool, and the OCI API does not show the instance. New VNICs wait.",
        "Check the controller's policies if the message says 404: the row GetInstance in docs/iam.md. Otherwise wait: the controller retries.",
    ),
    (
        "NodeRecreated",
        "The Node was created again without the label or the annotation that requested its VNIC. The VNIC stays.",
        "Set the label or the annotation again, or delete the VnicAttachment that the message names.",
    ),
    (
        "VnicNameConflict",
        "Another VnicAttachment or VnicProfile has a VNIC of this name on the Node.",
        "Give one of them another spec.name.",
    ),
];

/// What an Xid is.
const XID: &str = "Xid of NVIDIA's GPU driver";

/// The most words that are suggested.
const SUGGESTED: usize = 5;
/// How similar a suggestion is, from 0 to 1.
const SIMILAR: f64 = 0.8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    pub word: String,
    /// Another name of it: the name of a code, the condition's full type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    pub kind: &'static str,
    /// What it means, part by part.
    pub parts: Vec<Part>,
}

/// A part of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    pub label: String,
    pub text: String,
}

pub(crate) fn entries() -> Vec<Entry> {
    let rules = Rules::shipped().rules;
    let signals = collectors::all_signals().map(|signal| of_signal(signal, &rules));
    let of_rules = rules.iter().map(of_rule);
    let agent = AgentReason::ALL
        .iter()
        .map(|it| entry("condition of the agent", it.as_str(), &[("Means", it.meaning()), ("Do", it.next_step())]));
    let attachment = AttachmentReason::ALL.iter().map(|it| of_reason("reason of a VnicAttachment", *it));
    let profile = ProfileReason::ALL.iter().map(|it| of_reason("reason of a VnicProfile", *it));
    let policy = PolicyReason::ALL.iter().map(|it| of_reason("reason of a NodePolicy", *it));
    let task = TaskReason::ALL.iter().map(|it| of_reason("reason of a NodeTask", *it));
    let devices = device::reasons().map(|(word, next)| {
        let means = "A device of the node has this problem; the condition's message names the device.";
        entry("reason of a Node's condition", &word, &[("Means", means), ("Do", next)])
    });
    let known =
        of_node().into_iter().chain(codes()).chain(agent).chain(attachment).chain(profile).chain(policy).chain(task);
    known.chain(devices).chain(signals).chain(of_rules).chain(xids()).collect()
}

/// NVIDIA's catalogue of Xids, each code once.
fn xids() -> impl Iterator<Item = Entry> {
    catalogue::xids().map(|(code, row)| {
        let advice = format!("{}; NVIDIA's word is {}", row.advice.text(), row.advice.as_str());
        let severity = row.level.as_str();
        entry(XID, &format!("Xid {code}"), &[("Means", &row.note), ("Severity", severity), ("Do", &advice)])
    })
}

/// An Xid that the catalogue lacks, or an SXid, of which there is no catalogue.
pub(crate) fn unlisted_code(word: &str) -> Option<Entry> {
    let word = plain(word);
    let is_code = |code: &&str| !code.is_empty() && code.len() <= 6 && code.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(code) = word.strip_prefix("xid").filter(is_code) {
        let means = "NVIDIA's catalogue does not have this code, or it had none when this version was made. The agent shows it and does not judge it.";
        let next = "Look for an Xid 154 of the same device, which has the driver's own verdict, and for the code in NVIDIA's page \"Xid Errors\".";
        return Some(entry(XID, &format!("Xid {code}"), &[("Means", means), ("Do", next)]));
    }
    let code = word.strip_prefix("sxid").filter(is_code)?;
    let (means, next) = if catalogue::is_fatal_sxid(code.parse().ok()?) {
        ("An NVSwitch reports an error that ends all its traffic.", Advice::ResetFabric.text())
    } else {
        (
            "An NVSwitch reports an error. Its severity, Fatal or Non-fatal, is a word of the kernel message; only fatal ones are a problem.",
            "if it is Fatal, drain the node, then reset all GPUs and switches, or reboot; else nothing: only a rising rate says something",
        )
    };
    Some(entry("SXid of NVIDIA's NVSwitch driver", &format!("SXid {code}"), &[("Means", means), ("Do", next)]))
}

/// What a faulty device needs, or what the signal's remedy begins with.
pub(crate) fn need(signal: &str, device: Option<&FaultyDevice>) -> String {
    let remedy = || next_step(signal, Verdict::Problem).and_then(|step| step.split(['.', ';']).next());
    device.and_then(FaultyDevice::need).or_else(remedy).unwrap_or_default().to_owned()
}

/// Those of a word, in any case, with `-`, `_` or a blank.
pub(crate) fn find(entries: &[Entry], word: &str) -> Vec<Entry> {
    let plain_word = plain(word);
    let is_meant = |entry: &&Entry| {
        plain(&entry.word) == plain_word || entry.alias.as_deref().is_some_and(|alias| plain(alias) == plain_word)
    };
    entries.iter().filter(is_meant).cloned().collect()
}

/// Words that may have been meant, the nearest first.
pub(crate) fn near(entries: &[Entry], word: &str) -> Vec<String> {
    let plain_word = plain(word);
    let names = entries.iter().flat_map(|entry| [Some(&entry.word), entry.alias.as_ref()]).flatten();
    let score = |name: &String| {
        let name = plain(name);
        if plain_word.len() > 2 && name.contains(&plain_word) { 1.0 } else { strsim::jaro_winkler(&name, &plain_word) }
    };
    let mut scored: Vec<(f64, &String)> = names.map(|name| (score(name), name)).filter(|it| it.0 >= SIMILAR).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(SUGGESTED).map(|(_, name)| name.clone()).collect()
}

/// What to do about a signal, or about a condition of the agent.
pub(crate) fn next_step(name: &str, verdict: Verdict) -> Option<&'static str> {
    // The remedy is of a problem. What the controller measures has one text for both.
    if verdict == Verdict::Unknown && collectors::signals().any(|signal| signal.name == name) {
        return Some(UNKNOWN);
    }
    // A Node's condition has the signal's name as Kubernetes writes reasons.
    match name {
        AGENT_SILENT => return Some(AGENT_SILENT_STEP),
        NODE_NOT_READY => return Some(NODE_NOT_READY_STEP),
        AGENT_ACCOUNT_MISSING => return Some(AGENT_ACCOUNT_STEP),
        _ => {}
    }
    if let Some((_, next)) = device::reasons().find(|(reason, _)| reason == name) {
        return Some(next);
    }
    if let Some((_, _, next)) = REQUESTS.iter().find(|(word, ..)| *word == name) {
        return Some(next);
    }
    let remedy = collectors::all_signals().find(|signal| plain(signal.name) == plain(name)).map(|signal| signal.remedy);
    remedy.or_else(|| AgentReason::from_word(name).map(AgentReason::next_step))
}

fn plain(word: &str) -> String {
    word.chars().filter(|char| !matches!(char, '-' | '_' | ' ')).map(|char| char.to_ascii_lowercase()).collect()
}

fn entry(kind: &'static str, word: &str, parts: &[(&str, &str)]) -> Entry {
    let part = |(label, text): &(&str, &str)| Part { label: (*label).to_owned(), text: (*text).to_owned() };
    Entry { word: word.to_owned(), alias: None, kind, parts: parts.iter().map(part).collect() }
}

fn of_reason(kind: &'static str, reason: impl api::Reason) -> Entry {
    let on: Vec<&str> = reason.on().iter().map(|kind| kind.as_str()).collect();
    let on = format!("{} of {}", reason.status().as_str(), on.join(" and "));
    entry(kind, reason.as_str(), &[("Status", &on), ("Means", reason.meaning()), ("Do", reason.to_do())])
}

fn of_signal(signal: &Signal, rules: &[Rule]) -> Entry {
    let judged: Vec<String> =
        rules.iter().filter(|rule| rule.signal == signal.name).map(|rule| bound(rule, signal)).collect();
    let judged = match &*judged.join("; ") {
        "" => controller_signal_healthy(signal.name).unwrap_or("information, never a problem").to_owned(),
        judged => judged.to_owned(),
    };
    let parts = [("Means", signal.why), ("Source", signal.source), ("Rules", &judged), ("Do", signal.remedy)];
    entry("health signal", signal.name, &parts)
}

fn of_rule(rule: &Rule) -> Entry {
    let signal = collectors::signal(&rule.signal);
    let bound = signal.map(|signal| bound(rule, signal)).unwrap_or_default();
    let next = signal.map(|signal| signal.remedy).unwrap_or_default();
    let parts = [("Signal", rule.signal.as_str()), ("Healthy", &bound), ("Means", &rule.message), ("Do", next)];
    entry("health rule", &rule.name, &parts)
}

fn bound(rule: &Rule, signal: &Signal) -> String {
    let shapes = if rule.shapes.is_empty() { String::new() } else { format!(" on {}", rule.shapes.join(", ")) };
    let (bad, of) = (rule.samples.bad, rule.samples.of);
    format!("{}{shapes} ({}, {}, {bad} of {of} samples)", rule.bound_text(signal.unit), rule.name, rule.severity)
}

/// The conditions that the controller writes to Nodes, and those of their reasons that are not signals.
fn of_node() -> Vec<Entry> {
    let next =
        "Run `kubectl oke-node node NAME`: it shows each problem, or why there is no answer, with the next step.";
    let condition = |area: Area| {
        let kinds = collectors::KINDS.iter().filter(|kind| kind.area == area);
        let signals: Vec<&str> = kinds.flat_map(|kind| kind.signals).map(|signal| signal.name).collect();
        let parts = [
            ("True", "No signal of this area, and no condition of the agent, is a critical problem."),
            ("False", "At least one is: the reason names the worst."),
            (
                "Unknown",
                "The node's agent does not answer the controller (AgentSilent), or measures no signal (HealthOff).",
            ),
            ("Signals", &signals.join(", ")),
            ("Do", next),
        ];
        let word = area.condition().rsplit('/').next().unwrap_or_default();
        Entry { alias: Some(area.condition().to_owned()), ..entry("condition of a Node", word, &parts) }
    };
    let silent = "The node's agent does not answer the controller; the condition is Unknown.";
    let off = "The agent's setting HEALTH is off: no health signal is measured. HostHealthy is Unknown.";
    let reasons = [
        ("NoCriticalProblem", "The condition is True.", "Nothing."),
        (AGENT_SILENT, silent, AGENT_SILENT_STEP),
        (
            NODE_NOT_READY,
            "The kubelet's condition Ready is not True: no new pod starts on the node.",
            NODE_NOT_READY_STEP,
        ),
        (
            AGENT_ACCOUNT_MISSING,
            "The ServiceAccount of the agents does not exist: the API server refuses their tokens.",
            AGENT_ACCOUNT_STEP,
        ),
        (summary::HEALTH_OFF, off, "Set HEALTH=on in the ConfigMap oke-node-agent."),
    ];
    let requests = REQUESTS
        .iter()
        .map(|(word, means, next)| entry("problem of what a Node requests", word, &[("Means", means), ("Do", next)]));
    let reason = |(word, means, next)| entry("reason of a Node's condition", word, &[("Means", means), ("Do", next)]);
    Area::ALL.into_iter().map(condition).chain(reasons.map(reason)).chain(requests).collect()
}

/// The sections of docs/errors.md: `### CODE NAME`, then `**When** …`, `**Why** …`, `**Do** …`.
fn codes() -> impl Iterator<Item = Entry> {
    let sections = ERRORS.split("\n### ").skip(1);
    sections.filter_map(|section| {
        let (head, rest) = section.split_once('\n')?;
        let (code, name) = head.split_once(' ')?;
        let text = rest.split("\n## ").next()?;
        let parts = text.split("**").skip(1).collect::<Vec<_>>();
        let parts: Vec<(String, String)> = parts
            .chunks_exact(2)
            .filter_map(|pair| Some(((*pair.first()?).to_owned(), plain_text(pair.get(1)?))))
            .collect();
        let parts: Vec<(&str, &str)> = parts.iter().map(|(label, text)| (label.as_str(), text.as_str())).collect();
        Some(Entry { alias: Some(name.to_owned()), ..entry("error code of the CNI plugins", code, &parts) })
    })
}

/// A text of a document in one line, without the targets of its links.
fn plain_text(markdown: &str) -> String {
    let mut text = markdown.split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some((before, (label, after))) = text.split_once("](").and_then(|(head, after)| {
        let (before, label) = head.rsplit_once('[')?;
        Some((before, (label, after.split_once(')')?.1)))
    }) {
        text = format!("{before}{label}{after}");
    }
    text
}
