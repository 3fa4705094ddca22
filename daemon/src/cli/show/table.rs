//! Columns and sentences.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vcn::{Purpose, printable};

use crate::decide::usage::Usage;
use crate::report::reconcile_report::{LeftAlone, Pass, VnicState};
use crate::report::status::{AgentState, Status};

/// `status` for people.
pub(super) fn status(status: &Status) -> String {
    let mut text = String::new();
    let AgentState { running, version, uptime_seconds } = &status.agent;
    let uptime = uptime_seconds.map(|seconds| format!(", up {}", age(seconds))).unwrap_or_default();
    let agent = if *running { format!("running, version {version}{uptime}") } else { "not running".into() };
    line(&mut text, "agent", &agent);
    line(&mut text, "ready", if status.ready { "yes" } else { "no" });
    if let Some(instance) = &status.instance {
        line(&mut text, "instance", &format!("{} {} {}", instance.id, instance.shape, instance.region));
    }
    if let Some(pass) = &status.pass {
        if let Some(machine) = pass.machine {
            line(&mut text, "machine", &machine.to_string());
        }
        if let Some(state) = &pass.pod_network {
            let whose = if state.install { "VCN-native" } else { "not ours" };
            line(
                &mut text,
                "pod network",
                &format!("{whose} ({}): {}; {}", state.decided_by, state.reason, state.status),
            );
            for note in &state.notes {
                line(&mut text, "", note);
            }
        }
    }
    // What it says is above already.
    let told = |name: &str| name == "instance" && status.instance.is_some();
    for source in status.sources.iter().filter(|source| source.error.is_some() || !told(&source.name)) {
        let age = source.age_seconds.map(|seconds| format!(", {} ago", age(seconds))).unwrap_or_default();
        let error = source.error.as_ref().map(|error| format!("; now failing: {error}")).unwrap_or_default();
        line(&mut text, &source.name, &format!("{}{age}{error}", source.says));
    }
    if let Some(pass) = &status.pass {
        text.push('\n');
        let head = ["VNIC", "FOR", "MAC", "LINK", "TABLE", "ADDRESSES", "STATE"];
        text.push_str(&columns(&head, pass.vnics.iter().map(vnic)));
    }
    if !status.conditions.is_empty() {
        text.push('\n');
        for condition in &status.conditions {
            let what = condition.to_string();
            let _ = writeln!(text, "{} {}", if condition.blocks() { "BLOCKING" } else { "DEGRADED" }, printable(&what));
            if let Some(since) = condition.since_unix_millis {
                let then = UNIX_EPOCH + Duration::from_millis(since);
                let lasted = SystemTime::now().duration_since(then).unwrap_or_default();
                let _ = writeln!(text, "         for {}", age(lasted.as_secs()));
            }
        }
    }
    text
}

/// `pools` for people.
pub(super) fn pools(usage: &Usage) -> String {
    let rows = usage.pools.iter().map(|pool| {
        let purpose = word(pool.purpose);
        let counts = [pool.total, pool.in_use, pool.cooling, pool.free].map(|count| match count {
            u64::MAX => "endless".into(),
            count => count.to_string(),
        });
        let [total, in_use, cooling, free] = counts;
        vec![
            pool.vnic_id.to_string(),
            pool.link.to_string(),
            pool.table.to_string(),
            purpose.into(),
            pool.family.to_string(),
            total,
            in_use,
            cooling,
            free,
        ]
    });
    let mut text = columns(&["VNIC", "LINK", "TABLE", "FOR", "FAMILY", "TOTAL", "IN USE", "COOLING", "FREE"], rows);
    if let Some(reason) = &usage.reason {
        let _ = writeln!(text, "\n{}", printable(reason));
    }
    if !usage.allocations.is_empty() {
        let rows = usage.allocations.iter().map(|held| {
            let addresses: Vec<String> = held.addresses.iter().map(ToString::to_string).collect();
            let link = held.link.as_ref().map_or_else(|| "-".into(), ToString::to_string);
            let since = age(held.age_seconds) + if held.tentative { " (ADD not finished)" } else { "" };
            vec![addresses.join(","), link, held.holder.clone(), held.interface.to_string(), since]
        });
        text.push('\n');
        text.push_str(&columns(&["ADDRESSES", "LINK", "POD", "INTERFACE", "SINCE"], rows));
    }
    text
}

/// `plan` for people.
pub(super) fn plan(pass: &Pass) -> String {
    let mut text = String::new();
    match pass.changes.len() {
        0 => text.push_str("Nothing would be changed.\n"),
        count => {
            let _ = writeln!(text, "{count} change(s) would be made:\n");
        }
    }
    for change in &pass.changes {
        let _ = writeln!(text, "  {}", printable(&change.text));
    }
    if !pass.conditions.is_empty() {
        text.push_str("\nNot as it should be:\n\n");
        for condition in &pass.conditions {
            let _ = writeln!(text, "  {}", printable(&condition.to_string()));
        }
    }
    text
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
        VnicState { trouble: None, left_alone: Some(LeftAlone::InPod), .. } => "in a pod".into(),
        VnicState { trouble: None, left_alone: Some(LeftAlone::ForOnePod), .. } => "in order, for one pod".into(),
        VnicState { trouble: Some(reason), left_alone: Some(LeftAlone::InPod | LeftAlone::ForOnePod), .. } => {
            reason.to_string()
        }
        VnicState { trouble: Some(reason), left_alone: Some(_), .. } => format!("left alone: {reason}"),
        VnicState { trouble: Some(reason), .. } => reason.to_string(),
        VnicState { primary: true, .. } => "primary, the operating system's".into(),
        VnicState { left_alone: Some(LeftAlone::AnotherNetwork), .. } => "left alone: another pod network's".into(),
        VnicState { left_alone: Some(LeftAlone::Undecided), .. } => "left alone: whose it is is not known".into(),
        VnicState { application_resources: kept, .. } if !kept.is_empty() => {
            format!("kept for application resource {}", kept.join(", "))
        }
        _ => "in order".into(),
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

fn line(text: &mut String, what: &str, is: &str) {
    let _ = writeln!(text, "{:<20}{}", printable(what), printable(is));
}

pub(super) fn age(seconds: impl std::borrow::Borrow<u64>) -> String {
    match *seconds.borrow() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Left-aligned columns as wide as their widest cell.
pub(super) fn columns(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let shown = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).map(shown).collect();
    let width = |column| rows.iter().filter_map(|row: &Vec<String>| row.get(column)).map(String::len).max();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(at, cell)| format!("{cell:<width$}", width = width(at).unwrap_or(0)));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::usage::Holding;
    use crate::report::condition::{Condition, Reason};
    use crate::report::reconcile_report::{Cause, Changed, PodNetworkState};
    use crate::report::status::{InstanceState, SourceState};

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [vec!["x".into(), "long cell".into()], vec!["yyyy".into(), "z".into()]];
        assert_eq!(columns(&["A", "B"], rows.into_iter()), "A     B\nx     long cell\nyyyy  z\n");
    }

    #[test]
    fn control_characters_of_documents_are_escaped_in_every_table() {
        let foul = "\u{1b}[2J\nready  yes\u{9b}";
        let condition = Condition::degraded(Reason::NativePodNetworkPending, foul).about(foul);
        let vnic = VnicState {
            id: "ocid1.vnic.oc1.iad.v".parse().unwrap(),
            mac: "02:00:17:00:00:01".parse().unwrap(),
            primary: false,
            link: None,
            table: None,
            addresses: Vec::new(),
            application_resources: vec![foul.into()],
            left_alone: None,
            name: Some("storage".into()),
            purpose: Some(Purpose::Host),
            generation: None,
            configured: None,
            trouble: None,
        };
        let pass = Pass {
            cause: Cause::Preview,
            unix_millis: 0,
            micros: 0,
            changes: vec![Changed { noun: "pools".into(), text: foul.into() }],
            conditions: vec![condition.clone()],
            vnics: vec![vnic],
            machine: None,
            freed: Vec::new(),
            usable: false,
            pod_network: Some(PodNetworkState {
                install: false,
                decided_by: "node-label".into(),
                reason: foul.into(),
                status: "untouched".into(),
                notes: vec![foul.into()],
            }),
        };
        let holding = Holding {
            holder: foul.into(),
            interface: "eth0".parse().unwrap(),
            addresses: Vec::new(),
            link: None,
            age_seconds: 0,
            tentative: false,
        };
        let usage = Usage { reason: Some(foul.into()), pools: Vec::new(), allocations: vec![holding] };
        let source = SourceState {
            name: "native-pod-network".into(),
            says: foul.into(),
            age_seconds: None,
            error: Some(foul.into()),
        };
        let agent = AgentState { running: true, version: "1".into(), uptime_seconds: None };
        let instance = InstanceState { id: "id".into(), shape: foul.into(), region: "r".into() };
        let all = Status {
            agent,
            ready: false,
            conditions: vec![condition],
            instance: Some(instance),
            sources: vec![source],
            pass: Some(pass.clone()),
        };
        let why = super::super::why::text(&super::super::why::Why::of(&all, UNIX_EPOCH));
        for (text, times) in [(status(&all), 8), (plan(&pass), 3), (pools(&usage), 2), (why, 2)] {
            assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text}");
            assert!(!text.lines().any(|line| line.starts_with("ready  yes")), "{text}");
            assert_eq!(text.matches("\\u{1b}[2J\\nready  yes\\u{9b}").count(), times, "{text}");
        }
    }

    #[test]
    fn ages_are_told_in_the_unit_that_fits() {
        assert_eq!([5, 300, 7200, 200_000].map(age), ["5 s", "5 min", "2 h", "2 d"]);
    }
}
