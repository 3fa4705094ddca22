//! Each folder of `golden/link_policies` is a case: what policies require, what the node has, and the plan.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use documents::compare_file;
use installer::{PolicyMark, PolicySetting};
use serde_json::Value;
use tunables::links::{LinkFacts, choose};
use tunables::{DesiredLink, DocumentPolicy};

use super::*;
use crate::node_policy::history::History;
use crate::node_policy::plan::StepKind;
use crate::node_policy::sysctls::Observed;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn document(case: &Value) -> NodeDocument {
    let policy = |it: &Value| DocumentPolicy {
        name: text(&it["name"]),
        uid: text(&it["name"]),
        revision: "1".to_owned(),
        priority: it["priority"].as_u64().unwrap_or(100).try_into().unwrap(),
        mode: serde_json::from_value(it["mode"].clone()).unwrap(),
        ..DocumentPolicy::default()
    };
    let link = |it: &Value| DesiredLink {
        link: serde_json::from_value(it["link"].clone()).unwrap(),
        policy: it["policy"].as_u64().unwrap_or(0).try_into().unwrap(),
    };
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    NodeDocument {
        policies: list("policies").iter().map(policy).collect(),
        links: list("links").iter().map(link).collect(),
        ..NodeDocument::default()
    }
}

fn nics(case: &Value) -> Vec<LinkFacts> {
    let has = |it: &Value, what: &str| it["is"].as_array().is_some_and(|all| all.iter().any(|one| one == what));
    let facts = |it: &Value| LinkFacts {
        name: text(&it["name"]),
        mac: Some("02:00:17:00:00:01".to_owned()),
        driver: it["driver"].as_str().map(str::to_owned),
        is_primary: has(it, "primary"),
        has_ipv6: has(it, "ipv6"),
        is_configured: has(it, "primary") || has(it, "vnic"),
        has_mtu_of_vnic: has(it, "vnic"),
        leads_to_boot_disk: has(it, "boot"),
        ..LinkFacts::default()
    };
    case["nics"].as_array().unwrap().iter().map(facts).collect()
}

fn plan_of(case: &Value) -> String {
    let document = document(case);
    let nics = nics(case);
    let resolved = resolve(&document, choose(&document, &nics));
    let entries = |key: &str| case[key].as_object().cloned().unwrap_or_default().into_iter();
    let observed = entries("values").map(|(item, value)| {
        let value = value.as_str().map_or(Observed::Unsupported, |value| Observed::Value(value.to_owned()));
        (item.parse().unwrap(), value)
    });
    let record = entries("record").map(|(key, note)| {
        let (before, set, policy) = (text(&note["before"]), text(&note["set"]), text(&note["policy"]));
        let mark = PolicyMark { policy, cluster: String::new(), requested: set.clone(), ..PolicyMark::default() };
        (key.parse().unwrap(), PolicySetting { key, before, set, mark })
    });
    let journal: Content =
        serde_json::from_value(case.get("journal").cloned().unwrap_or(serde_json::json!({}))).unwrap();
    let macs: BTreeMap<_, _> = nics.iter().map(|it| (it.name.clone(), it.mac.clone())).collect();
    let (observed, record) = (observed.collect(), record.collect());
    let (history, now) = (History::default(), Instant::now());
    let (document, resolved, record, observed, history) = (&document, &resolved, &record, &observed, &history);
    let owned =
        entries("record").filter(|(_, note)| note["owner"] == "agent").map(|(key, _)| key.parse().unwrap()).collect();
    let links = LinkHistory { journal: &journal, macs: &macs, has_leader: case["leader"] != "silent", owned: &owned };
    show(&plan(Facts { document, resolved, record, observed, history, trials: None, now }, links))
}

fn show(plan: &LinkPlan) -> String {
    let mut shown = String::new();
    for (link, LinkSteps { steps, needs_leader }) in &plan.changes {
        let proof = if *needs_leader { "probes, and the leader" } else { "probes" };
        writeln!(shown, "change {link}, confirmed by {proof}:").unwrap();
        for step in steps {
            let verb = if matches!(step.kind, StepKind::SetBack(_)) { "set back" } else { "set" };
            writeln!(shown, "  {verb} {} from {} to {}", step.item, step.from, step.to).unwrap();
        }
    }
    for step in &plan.restores {
        writeln!(shown, "restore {} from {} to {}", step.item, step.from, step.to).unwrap();
    }
    plan.rest.forget.iter().for_each(|item| writeln!(shown, "forget {item}").unwrap());
    for (item, desired) in &plan.rest.in_sync {
        writeln!(shown, "in sync {item}={} of {}", desired.value, desired.policy).unwrap();
    }
    if plan.rest.compared > 0 {
        writeln!(shown, "compared and equal: {}", plan.rest.compared).unwrap();
    }
    for it in &plan.rest.reports {
        let (state, message) = (it.state.as_str(), &it.message);
        writeln!(
            shown,
            "{state} {} of {}: has {:?}, desired {:?}; {message}",
            it.item, it.policy, it.current, it.desired
        )
        .unwrap();
    }
    shown
}

#[test]
fn each_case_has_its_plan() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/link_policies");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let case = entry.unwrap().path();
        let parsed = serde_yaml_ng::from_str(&fs::read_to_string(case.join("case.yaml")).unwrap());
        let shown = plan_of(&parsed.unwrap_or_else(|error| panic!("{}: {error}", case.display())));
        compare_file(&case.join("plan.txt"), &shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
        count += 1;
    }
    assert!(count > 5);
}
