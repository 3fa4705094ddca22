//! Cases of connections: folders of `golden/nettest`. `case.yaml` has the ends, the objects and the results of probes; `answer.txt`
//! what is shown. `UPDATE_DOCS=1` writes the answers.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use command::page::Page;
use documents::compare;
use serde::Deserialize;
use serde_json::Value;

use super::conclusion::ProbeResult;
use super::facts::Fact;
use super::objects::{Objects, OtherPolicies};
use super::policies::Port;
use crate::answer::{Answer, Style};
use crate::commands::connection::ConnectionResult;
use crate::ends::{Source, Target};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    from: String,
    to: String,
    port: Option<u16>,
    objects: Vec<Value>,
    #[serde(default)]
    other_policies: Vec<String>,
    #[serde(default)]
    unread: Vec<String>,
    #[serde(default)]
    probes: Vec<ProbeResult>,
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn objects(case: &Case, to: &Target) -> Objects {
    let mut found = Objects { unread: case.unread.clone(), ..Objects::default() };
    let is = |value: &Value, text: &str| {
        let part = |name: &str| value["metadata"][name].as_str().unwrap_or_default().to_owned();
        text == format!("{}/{}", part("namespace"), part("name"))
    };
    let name = |text: &str| {
        text.split_once('/').map(|(_, rest)| rest.split(':').next().unwrap().to_owned()).unwrap_or_default()
    };
    (found.slices, found.selected) = (Some(Vec::new()), Some(Vec::new()));
    for value in &case.objects {
        match value["kind"].as_str().unwrap() {
            "Service" if is(value, "kube-system/kube-dns") => found.dns = Some(read(value)),
            "Service" => found.service = Some(read(value)),
            "EndpointSlice" => found.slices.as_mut().unwrap().push(read(value)),
            "NetworkPolicy" => found.policies.push(read(value)),
            "Node" => found.node = Some(read(value)),
            "Namespace" => {
                let labels = value["metadata"]["labels"].clone();
                let labels = if labels.is_null() { Value::Object(serde_json::Map::new()) } else { labels };
                found.namespaces.insert(value["metadata"]["name"].as_str().unwrap().to_owned(), read(&labels));
            }
            "Pod" if is(value, &name(&case.from)) && case.from.starts_with("pod/") => found.source = Some(read(value)),
            "Pod" if is(value, &name(&case.to)) && matches!(to, Target::Pod(_)) => found.target = Some(read(value)),
            "Pod" if value["metadata"]["namespace"] == "kube-system" => found.dns_pods.push(read(value)),
            "Pod" => found.selected.as_mut().unwrap().push(read(value)),
            kind => panic!("{kind}"),
        }
    }
    let other = |kind: &String| OtherPolicies { kind: kind.clone(), has_objects: Some(true) };
    found.other_policies = case.other_policies.iter().map(other).collect();
    found
}

fn answer(folder: &Path) -> ConnectionResult {
    let text = fs::read_to_string(folder.join("case.yaml")).unwrap();
    let case: Case = serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let (from, to) = (Source::read(&case.from).unwrap(), Target::read(&case.to).unwrap());
    let port = case.port.map(|number| Port { protocol: "TCP".to_owned(), number });
    let facts = super::facts::facts(&from, &to, port.as_ref(), &objects(&case, &to));
    let probes = if facts.are_enough() {
        assert!(case.probes.is_empty(), "{}: no probe is sent", folder.display());
        Vec::new()
    } else {
        case.probes
    };
    ConnectionResult::new(&case.from, &case.to, facts, probes, Vec::new())
}

#[test]
fn cases_have_their_answers() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/nettest");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 20, "{}", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let mut page = Page::default();
        let answer = answer(&case);
        answer.show(&mut page, Style { wide: false, now_unix_millis: 0 });
        page.line(format_args!("exit status {}", answer.exit() as u8));
        wrong.extend(documents::compare_file(&case.join("answer.txt"), &page.into_text()).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn document_has_the_findings_and_the_answers() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/network-tests.md");
    let mut table = "| finding | label | meaning |\n|---|---|---|\n".to_owned();
    for fact in Fact::ALL {
        let (label, meaning) = fact.meaning();
        writeln!(table, "| {fact} | {label} | {meaning} |").unwrap();
    }
    assert_eq!(compare(&document, "facts", &table), Ok(()));
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/nettest");
    let case = "no_endpoint_is_ready";
    let answer = fs::read_to_string(golden.join(case).join("answer.txt")).unwrap();
    assert_eq!(compare(&document, &format!("answer {case}"), &format!("```\n{answer}```\n")), Ok(()));
}
