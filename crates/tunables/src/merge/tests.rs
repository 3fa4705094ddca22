//! Golden cases: folders of `golden/merge`, each with its policies and what the node gets.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use api::{NodePolicy, NodeSettings};

use super::*;
use crate::revision;

fn policies(folder: &Path) -> Vec<(NodePolicy, String)> {
    let text = fs::read_to_string(folder.join("policies.yaml")).unwrap();
    let read = text.split("---\n").filter(|part| !part.trim().is_empty());
    read.map(|part| {
        let policy: NodePolicy = serde_yaml_ng::from_str(part).unwrap();
        let revision = revision::of_policy(policy.spec.mode, policy.spec.priority(), &policy.spec.settings);
        (policy, revision)
    })
    .collect()
}

fn merged(policies: &[(NodePolicy, String)]) -> NodeItems {
    let of_node: Vec<PolicyOfNode<'_>> = policies
        .iter()
        .map(|(policy, revision)| PolicyOfNode {
            name: policy.metadata.name.as_deref().unwrap(),
            uid: "u",
            created: policy.metadata.creation_timestamp.as_ref().unwrap().0.as_second(),
            revision,
            priority: policy.spec.priority(),
            mode: policy.spec.mode.into(),
            on_delete: policy.spec.on_delete,
            settings: Some(&policy.spec.settings),
        })
        .collect();
    merge(&of_node)
}

/// As a person reads it.
fn text(items: &NodeItems) -> String {
    let mut text = String::new();
    let of = |index: usize| format!("{} of {}", items.policies[index].mode, items.policies[index].name);
    for entry in &items.sysctls {
        writeln!(text, "{} = {} ({})", entry.key, entry.value, of(entry.policy)).unwrap();
    }
    for entry in &items.huge_pages {
        writeln!(text, "transparentHugePages.enabled = {} ({})", entry.enabled, of(entry.policy)).unwrap();
    }
    for entry in &items.links {
        let link = serde_json::to_string(&entry.link).unwrap();
        writeln!(text, "link {link} ({})", of(entry.policy)).unwrap();
    }
    for entry in &items.files {
        let content = entry.content.trim_end();
        writeln!(text, "{} {:o} {content:?} ({})", entry.path, entry.mode, of(entry.policy)).unwrap();
    }
    for unit in &items.restart {
        writeln!(text, "restart {unit}").unwrap();
    }
    for entry in &items.kubelet {
        let reservations = serde_json::to_string(&entry.reservations).unwrap();
        writeln!(text, "kubelet {reservations} ({})", of(entry.policy)).unwrap();
    }
    for Conflict { policy, rival, item } in &items.conflicts {
        writeln!(text, "conflict: {policy} loses {item} to {rival}").unwrap();
    }
    for name in &items.left_out {
        writeln!(text, "left out: {name}").unwrap();
    }
    text
}

#[test]
fn node_gets_what_the_golden_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/merge");
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 6);
    for case in cases {
        let policies = policies(&case);
        let found = text(&merged(&policies));
        // The order in which policies are listed changes nothing.
        let reversed: Vec<_> = policies.iter().cloned().rev().collect();
        assert_eq!(text(&merged(&reversed)), found, "{}", case.display());
        let file = case.join("items.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &found).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap_or_default(), found, "{}", case.display());
    }
}

#[test]
fn policies_beyond_the_document_are_left_out_by_precedence() {
    let settings: Vec<NodeSettings> = (0..50)
        .map(|number| NodeSettings {
            sysctls: (0..64).map(|key| (format!("net.core.key_{number}_{key}"), "1".repeat(20))).collect(),
            ..NodeSettings::default()
        })
        .collect();
    let names: Vec<String> = (0..50).map(|number| format!("policy-{number:02}")).collect();
    let of_node = |(number, settings): (usize, _)| PolicyOfNode {
        name: names[number].as_str(),
        uid: "u",
        created: 0,
        revision: "0123456789abcdef",
        priority: 1000 - u16::try_from(number).unwrap(),
        mode: DocumentMode::Apply,
        on_delete: PolicyRemoval::Restore,
        settings: Some(settings),
    };
    let all: Vec<PolicyOfNode<'_>> = settings.iter().enumerate().map(of_node).collect();
    let items = merge(&all);
    assert_eq!(items.policies.len() + items.left_out.len(), 50);
    assert!(items.policies.len() >= 3 && items.policies[0].name == "policy-00", "{}", items.policies.len());
    assert_eq!(items.left_out[0], "policy-49");
    let instance = format!("ocid1.instance.oc1.eu-frankfurt-1.{}", "a".repeat(60));
    let baseline = Baseline::new(true, (0..40).map(|number| format!("a_problem_with_a_long_name_{number}")));
    let document = items.document(&"u".repeat(36), Some(&instance), baseline);
    assert!(serde_json::to_vec(&document).unwrap().len() <= DOCUMENT_MAX);
}

#[test]
fn file_of_what_the_node_needs_is_refused_without_its_restart() {
    let refused = |restart: &[&str], mode| {
        let settings = serde_json::json!({
            "files": [{ "path": "/etc/crio/crio.conf.d/90-web.conf", "content": "x = 1\n" },
                { "path": "/etc/chrony.d/90-web.conf", "content": "makestep 1 3\n" }],
            "restart": restart, "kubelet": { "systemReserved": { "cpu": "500m" } }
        });
        let settings: NodeSettings = serde_json::from_value(settings).unwrap();
        let items = refusals(&settings, mode).into_iter().map(|(item, _)| item.to_owned());
        items.collect::<Vec<_>>()
    };
    let (crio, apply) = ("/etc/crio/crio.conf.d/90-web.conf", DocumentMode::Apply);
    assert_eq!(refused(&[], apply), [crio, item::KUBELET], "chronyd may wait for the next boot");
    assert_eq!(refused(&["crio.service"], apply), [item::KUBELET]);
    assert_eq!(refused(&["crio.service", "kubelet.service"], apply), [""; 0]);
    assert_eq!(refused(&[], DocumentMode::Report), [""; 0], "a report changes nothing");
}
