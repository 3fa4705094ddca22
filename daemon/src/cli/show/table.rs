//! The answers for people: fields, columns and sentences.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use command::page::{Page, age};
use ipam::AssignedAddress;
use vcn::Purpose;

use crate::decide::usage::Usage;
use crate::facts::condition::Condition;
use crate::facts::reconcile_report::{ReconcileReport, UnmanagedReason, VnicState};
use crate::report::attachments::Attachment;
use crate::report::status::{AgentState, Status};

pub(super) fn status(page: &mut Page, status: &Status) {
    let AgentState { version, uptime_seconds, .. } = &status.agent;
    page.field("agent", format_args!("running, version {version}, up {}", age(*uptime_seconds)));
    page.field("ready", if status.readiness.ready { "yes" } else { "no" });
    if let Some(instance) = &status.instance {
        page.field("instance", format_args!("{} {} {}", instance.id, instance.shape, instance.region));
    }
    if let Some(machine) = status.report.as_ref().and_then(|report| report.machine) {
        page.field("machine", machine);
    }
    if let Some(state) = status.report.as_ref().and_then(|report| report.pod_network.as_ref()) {
        let owner = if state.install { "VCN-native" } else { "not VCN-native" };
        page.field("pod network", format_args!("{owner} ({}): {}; {}", state.decided_by, state.reason, state.status));
        state.notes.iter().for_each(|note| page.field("", note));
    }
    // The field above has the instance's summary.
    let is_shown = |name: &str| name == "instance" && status.instance.is_some();
    for source in status.sources.iter().filter(|source| source.error.is_some() || !is_shown(&source.name)) {
        let age = source.age_seconds.map(|seconds| format!(", {} ago", age(seconds))).unwrap_or_default();
        let error = source.error.as_ref().map(|error| format!("; now failing: {error}")).unwrap_or_default();
        page.field(&source.name, format_args!("{}{age}{error}", source.summary));
    }
    if let Some(report) = &status.report {
        page.line("");
        let head = ["VNIC", "FOR", "MAC", "LINK", "TABLE", "ADDRESSES", "STATE"];
        page.columns(&head, report.vnics.iter().map(vnic));
    }
    if !status.readiness.conditions.is_empty() {
        page.line("");
    }
    for condition in &status.readiness.conditions {
        page.line(format_args!("{} {condition}", if condition.blocks() { "BLOCKING" } else { "DEGRADED" }));
        if let Some(seconds) = duration(condition, SystemTime::now()) {
            page.line(format_args!("         for {}", age(seconds)));
        }
    }
}

pub(super) fn pools(page: &mut Page, usage: &Usage) {
    let rows = usage.pools.iter().map(|pool| {
        let purpose = word(pool.purpose);
        let count = |count: u64| if count == u64::MAX { "unlimited".into() } else { count.to_string() };
        vec![
            pool.vnic_id.to_string(),
            pool.link.to_string(),
            pool.table.to_string(),
            purpose.into(),
            pool.family.to_string(),
            count(pool.total),
            count(pool.in_use),
            count(pool.cooling),
            count(pool.free),
        ]
    });
    page.columns(&["VNIC", "LINK", "TABLE", "FOR", "FAMILY", "TOTAL", "IN USE", "COOLING", "FREE"], rows);
    let (committed, tentative) = (usage.attachments.committed, usage.attachments.tentative);
    page.line("");
    page.line(format_args!("{} attachment(s), {tentative} with an unfinished ADD", committed + tentative));
    if let Some(reason) = &usage.reason {
        page.line(reason);
    }
}

/// A line for each, then the problems.
pub(super) fn attachments(page: &mut Page, all: &[Attachment]) {
    if all.is_empty() {
        page.line("No pod has an address of this node's pools.");
        return;
    }
    page.columns(
        &["POD", "ADDRESSES", "VNIC LINK", "TABLE", "HOST LINK", "AGE", "STATE", "CONTAINER", "INTERFACE", "VNIC"],
        all.iter().map(attachment),
    );
    let broken: Vec<&Attachment> = all.iter().filter(|it| !it.problems.is_empty()).collect();
    page.line("");
    page.line(format_args!("{} attachment(s), {} with problems", all.len(), broken.len()));
    for it in broken {
        let addresses = joined(it, |assigned| assigned.address.to_string());
        page.line("");
        page.line(format_args!("{} ({addresses}, {})", it.pod.as_ref().unwrap_or(&it.container), it.host_link));
        it.problems.iter().for_each(|problem| page.line(format_args!("  {problem}")));
    }
}

pub(super) fn plan(page: &mut Page, report: &ReconcileReport) {
    match report.changes.len() {
        0 => page.line("Nothing would be changed."),
        count => {
            page.line(format_args!("{count} change(s) would be made:"));
            page.line("");
        }
    }
    report.changes.iter().for_each(|change| page.line(format_args!("  {}", change.text)));
    if !report.conditions.is_empty() {
        page.line("");
        page.line("Conditions:");
        page.line("");
    }
    report.conditions.iter().for_each(|condition| page.line(format_args!("  {condition}")));
}

/// What a VNIC is for, and the name that its VnicAttachment gives it.
pub(super) fn requested_for(vnic: &VnicState) -> Option<String> {
    Some(format!("{} {}", word(vnic.purpose?), vnic.name.as_ref()?))
}

const fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Pods => "pods",
        Purpose::Host => "host",
        Purpose::Attach => "attach",
    }
}

fn vnic(vnic: &VnicState) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let addresses: Vec<String> = vnic.addresses.iter().map(ToString::to_string).collect();
    let state = match vnic {
        VnicState { trouble: None, unmanaged: Some(UnmanagedReason::InPod), .. } => "in a pod".into(),
        VnicState { trouble: None, unmanaged: Some(UnmanagedReason::ForOnePod), .. } => "in sync, for one pod".into(),
        VnicState { trouble: Some(reason), unmanaged: Some(_), .. } => format!("not configured: {reason}"),
        VnicState { trouble: Some(reason), .. } => reason.to_string(),
        VnicState { primary: true, .. } => "primary, configured by the operating system".into(),
        VnicState { unmanaged: Some(UnmanagedReason::AnotherNetwork), .. } => {
            "not configured: owned by another pod network".into()
        }
        VnicState { unmanaged: Some(UnmanagedReason::Undecided), .. } => "not configured: owner not known yet".into(),
        VnicState { unmanaged: Some(UnmanagedReason::PurposeUnknown), .. } => {
            "not configured: its VnicAttachment is not known yet".into()
        }
        VnicState { application_resources: reserved, .. } if !reserved.is_empty() => {
            format!("reserved for application resource {}", reserved.join(", "))
        }
        _ => "in sync".into(),
    };
    vec![
        vnic.id.to_string(),
        or_dash(requested_for(vnic)),
        vnic.mac.to_string(),
        or_dash(vnic.link.as_ref().map(ToString::to_string)),
        or_dash(vnic.table.map(|table| table.to_string())),
        addresses.join(","),
        state,
    ]
}

fn attachment(it: &Attachment) -> Vec<String> {
    vec![
        it.pod.clone().unwrap_or_else(|| "-".into()),
        joined(it, |assigned| assigned.address.to_string()),
        joined(it, |assigned| assigned.vnic_link.to_string()),
        joined(it, |assigned| assigned.table.to_string()),
        it.host_link.to_string(),
        age(it.age_seconds),
        it.state.to_string() + if it.problems.is_empty() { "" } else { " !" },
        // As much as `crictl` shows.
        it.container.chars().take(13).collect(),
        it.interface.to_string(),
        joined(it, |assigned| assigned.vnic_id.to_string()),
    ]
}

/// A property of its addresses, each value once.
fn joined(attachment: &Attachment, property: impl Fn(&AssignedAddress) -> String) -> String {
    let mut all: Vec<String> = attachment.addresses.iter().map(property).collect();
    all.dedup();
    all.join(",")
}

/// How long a condition has lasted, in seconds.
pub(super) fn duration(condition: &Condition, now: SystemTime) -> Option<u64> {
    let since = UNIX_EPOCH + Duration::from_millis(condition.since_unix_millis?);
    Some(now.duration_since(since).unwrap_or_default().as_secs())
}
