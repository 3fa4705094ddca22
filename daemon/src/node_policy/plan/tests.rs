//! Plans of single items, in the words of a line: `vm.swappiness 60 -> 10 set`.

use std::time::Duration;

use installer::PolicyMark;
use tunables::{DesiredSysctl, DocumentPolicy};

use super::*;
use crate::node_policy::resolve::resolve;
use crate::node_policy::sysctls::record_key;

/// A document of a policy for each item.
pub(in crate::node_policy) fn document(items: &[(&str, &str, DocumentMode)]) -> NodeDocument {
    let mut document =
        NodeDocument { version: 1, revision: "r".into(), cluster: "c".into(), ..NodeDocument::default() };
    for (index, (key, value, mode)) in items.iter().enumerate() {
        document.sysctls.push(DesiredSysctl { key: (*key).into(), value: (*value).into(), policy: index });
        document.policies.push(DocumentPolicy {
            name: format!("p{index}"),
            uid: format!("u{index}"),
            mode: *mode,
            ..DocumentPolicy::default()
        });
    }
    document
}

fn item(key: &str) -> Item {
    Item::Sysctl(key.to_owned())
}

/// A note: `before`, `set`, and the value that policy `u0` names.
fn noted(key: &str, [before, set, requested]: [&str; 3]) -> (Item, PolicySetting) {
    let mark =
        PolicyMark { policy: "u0".into(), cluster: "c".into(), requested: requested.into(), ..PolicyMark::default() };
    let item = item(key);
    (item.clone(), PolicySetting { key: record_key(&item), before: before.into(), set: set.into(), mark })
}

/// The plan in lines.
fn planned(document: &NodeDocument, kernel: &[(&str, &str)], record: &[(Item, PolicySetting)]) -> Vec<String> {
    planned_after(document, kernel, record, &History::default())
}

fn planned_after(
    document: &NodeDocument,
    kernel: &[(&str, &str)],
    record: &[(Item, PolicySetting)],
    history: &History,
) -> Vec<String> {
    let observe = |(key, value): &(&str, &str)| {
        let observed = match *value {
            "not granted" => Observed::NotGranted,
            "unsupported" => Observed::Unsupported,
            value => Observed::Value(value.to_owned()),
        };
        (item(key), observed)
    };
    let resolved = resolve(document, &Default::default());
    let plan = plan(Facts {
        document,
        resolved: &resolved,
        record: &record.iter().cloned().collect(),
        observed: &kernel.iter().map(observe).collect(),
        history,
        trials: Some(Trials { proofs: &Proofs::default(), unconfirmed: &BTreeSet::new(), trial: Trial::New }),
        now: Instant::now() + Duration::from_mins(5),
    });
    let kind = |step: &Step| match step.kind {
        StepKind::Set(_) => "set",
        StepKind::Try(_) => "try",
        StepKind::Withdraw => "withdraw",
        StepKind::SetBack(_) => "set back",
        StepKind::Restore => "restore",
    };
    let steps = plan.steps.iter().map(|step| format!("{} {} -> {} {}", step.item, step.from, step.to, kind(step)));
    let in_sync = plan.in_sync.iter().map(|(item, _)| format!("{item} in sync"));
    let compared = (plan.compared > 0).then(|| format!("{} compared", plan.compared));
    let forget = plan.forget.iter().map(|item| format!("{item} forget"));
    let reports = plan.reports.iter().map(|it| format!("{} {} {}", it.item, it.policy, it.state.as_str()));
    steps.chain(in_sync).chain(compared).chain(forget).chain(plan.unrestored.clone()).chain(reports).collect()
}

#[test]
fn value_is_set_where_the_mode_is_apply_and_compared_where_it_is_report() {
    let items = [
        ("vm.swappiness", "10", DocumentMode::Apply),
        ("vm.dirty_ratio", "30", DocumentMode::Report),
        ("vm.max_map_count", "262144", DocumentMode::Report),
        ("vm.min_free_kbytes", "90000", DocumentMode::Apply),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456", DocumentMode::Apply),
        ("fs.file-max", "900000", DocumentMode::Apply),
        ("vm.zone_reclaim_mode", "0", DocumentMode::Report),
    ];
    let kernel = [
        ("vm.swappiness", "60"),
        ("vm.dirty_ratio", "20"),
        ("vm.max_map_count", "262144"),
        ("vm.min_free_kbytes", "90000"),
        ("net.ipv4.tcp_rmem", "4096\t131072\t6291456"),
        ("fs.file-max", "not granted"),
        ("vm.zone_reclaim_mode", "unsupported"),
    ];
    assert_eq!(
        planned(&document(&items), &kernel, &[]),
        [
            "vm.swappiness 60 -> 10 try",
            "net.ipv4.tcp_rmem in sync",
            "vm.min_free_kbytes in sync",
            "1 compared",
            "fs.file-max p5 NotGranted",
            "vm.dirty_ratio p1 Drifted",
            "vm.zone_reclaim_mode p6 Unsupported",
        ]
    );
}

#[test]
fn drift_is_a_value_that_was_set_and_no_kill_before_it_was() {
    let document = document(&[("vm.swappiness", "10", DocumentMode::Apply)]);
    let note = [noted("vm.swappiness", ["60", "10", "10"])];
    assert_eq!(planned(&document, &[("vm.swappiness", "60")], &note), ["vm.swappiness 60 -> 10 try"]);
    assert_eq!(planned(&document, &[("vm.swappiness", "40")], &note), ["vm.swappiness 40 -> 10 set back"]);
    let rounded = [noted("vm.swappiness", ["60", "12", "10"])];
    assert_eq!(planned(&document, &[("vm.swappiness", "12")], &rounded), ["vm.swappiness in sync"]);
}

#[test]
fn item_that_no_policy_requires_is_restored_if_it_has_our_value() {
    let nothing = document(&[]);
    let note = [noted("vm.swappiness", ["60", "10", "10"])];
    let with = |value: &str| planned(&nothing, &[("vm.swappiness", value)], &note);
    assert_eq!(with("10"), ["vm.swappiness 10 -> 60 restore"]);
    assert_eq!(with("60"), ["vm.swappiness forget"]);
    assert_eq!(with("40"), ["vm.swappiness forget"], "another program set it");
    assert_eq!(with("unsupported"), ["vm.swappiness forget"]);
    let mount = "the agent's container has no writable mount of /proc/sys/vm";
    assert_eq!(with("not granted"), [format!("vm.swappiness to 60: {mount}")], "the mount may come back");
    // From Apply to Report.
    let report = document(&[("vm.swappiness", "10", DocumentMode::Report)]);
    let planned_report = planned(&report, &[("vm.swappiness", "10")], &note);
    assert_eq!(planned_report, ["vm.swappiness 10 -> 60 restore", "1 compared"]);
    // A refused key is required by no policy.
    let refused = document(&[("vm.swappiness", "x", DocumentMode::Apply)]);
    let planned_refused = planned(&refused, &[("vm.swappiness", "10")], &note);
    assert_eq!(planned_refused, ["vm.swappiness 10 -> 60 restore", "vm.swappiness p0 Refused"]);
}

#[test]
fn kept_policy_and_other_cluster_leave_values() {
    let note = [noted("vm.swappiness", ["60", "10", "10"])];
    let kept = document(&[("vm.dirty_ratio", "1", DocumentMode::Keep)]);
    assert_eq!(planned(&kept, &[("vm.swappiness", "10")], &note), ["vm.swappiness forget"]);
    let other = NodeDocument { cluster: "other".into(), ..document(&[]) };
    assert_eq!(planned(&other, &[("vm.swappiness", "10")], &note), ["vm.swappiness forget"]);
}

#[test]
fn zeroed_counterpart_stays_until_its_item_is_restored() {
    let record = [noted("vm.dirty_bytes", ["0", "33554432", "33554432"]), noted("vm.dirty_ratio", ["20", "0", "0"])];
    let kernel = [("vm.dirty_bytes", "33554432"), ("vm.dirty_ratio", "0")];
    let required = document(&[("vm.dirty_bytes", "33554432", DocumentMode::Apply)]);
    assert_eq!(planned(&required, &kernel, &record), ["vm.dirty_bytes in sync"]);
    let restored = ["vm.dirty_bytes 33554432 -> 0 restore", "vm.dirty_ratio 0 -> 20 restore"];
    assert_eq!(planned(&document(&[]), &kernel, &record), restored);
}

#[test]
fn item_that_is_left_alone_or_refused_says_so() {
    let document = document(&[("vm.swappiness", "10", DocumentMode::Apply)]);
    let now = Instant::now() + Duration::from_mins(5);
    let mut history = History::default();
    history.note_stop(&item("vm.swappiness"), "10", now);
    let kernel = [("vm.swappiness", "60")];
    assert_eq!(planned_after(&document, &kernel, &[], &history), ["vm.swappiness p0 Reverted"]);
    let mut history = History::default();
    history.note_refused(&item("vm.swappiness"), "10", "EINVAL", now);
    assert_eq!(planned_after(&document, &kernel, &[], &history), ["vm.swappiness p0 Failed"]);
}
