//! docs/network-tests.md has the causes and the verdicts of recorded cases as the code has them, and its manifests can be read.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Cause, Place};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn causes() -> String {
    let mut table = "| cause | where | fix |\n|---|---|---|\n".to_owned();
    for cause in Cause::ALL {
        // A verdict says which of the two.
        let place = match cause.place() {
            Place::SourceHost | Place::TargetHost => "a host",
            place => place.as_str(),
        };
        writeln!(table, "| {} | {place} | {} |", cause.as_str(), cause.fix()).unwrap();
    }
    table
}

// One test: another one would read the file while it is written.
#[test]
fn document_has_the_causes_the_recorded_verdicts_and_valid_manifests() {
    let path = root().join("../../docs/network-tests.md");
    assert_eq!(documents::compare(&path, "causes", &causes()), Ok(()));
    let page = fs::read_to_string(&path).unwrap();
    let cases: Vec<&str> = page.split("<!-- begin: case ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    assert!(cases.len() >= 6);
    for case in cases {
        let verdict = fs::read_to_string(root().join("golden").join(case).join("verdict.txt")).unwrap();
        assert_eq!(documents::compare(&path, &format!("case {case}"), &format!("```\n{verdict}```\n")), Ok(()));
    }
    manifests_are_network_tests(&page);
}

fn manifests_are_network_tests(text: &str) {
    let manifests: Vec<&str> = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(manifests.len(), 2);
    for manifest in manifests {
        let test: api::NetworkTest = serde_yaml_ng::from_str(manifest).unwrap();
        let written = serde_json::to_value(&test.spec).unwrap();
        let typed: serde_json::Value = serde_yaml_ng::from_str(manifest).unwrap();
        assert_eq!(written, typed["spec"], "no field is unknown");
    }
}
