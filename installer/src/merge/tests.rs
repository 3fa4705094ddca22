//! The shapes in which others leave our configuration: `golden/merge/<sentence>/{last,disk,wanted,merged}.conflist`, and
//! what has to hold for all of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;

fn cases() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/merge");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn read(case: &Path, name: &str) -> Option<String> {
    fs::read_to_string(case.join(name)).ok()
}

fn merged(last: Option<&str>, disk: &str, wanted: &str) -> Merged {
    let last: Option<Value> = last.map(|text| serde_json::from_str(text).unwrap());
    let wanted = serde_json::from_str(wanted).unwrap();
    Merge { last: last.as_ref(), wanted: &wanted, familiar: &[] }.into_text(disk).unwrap()
}

#[test]
fn golden() {
    let cases = cases();
    assert!(cases.len() >= 10);
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let (last, disk) = (read(&case, "last.conflist"), read(&case, "disk.conflist").unwrap());
        let wanted = read(&case, "wanted.conflist").or_else(|| last.clone()).expect("what is wanted");
        let Merged { text, foreign, provided, disturbed } = merged(last.as_deref(), &disk, &wanted);
        let told = format!("foreign: {foreign:?}\nprovided: {provided:?}\ndisturbed: {disturbed:#?}\n");
        if std::env::var_os("WRITE_GOLDEN").is_some() {
            fs::write(case.join("merged.conflist"), &text).unwrap();
            fs::write(case.join("told.txt"), &told).unwrap();
        }
        assert_eq!(text, read(&case, "merged.conflist").unwrap_or_else(|| disk.clone()), "{name}");
        assert_eq!(told, read(&case, "told.txt").unwrap(), "{name}");

        let again = merged(Some(&wanted), &text, &wanted);
        assert_eq!((again.text, again.disturbed), (text, vec![]), "{name}: merged is merged");
    }
}

#[test]
fn what_is_no_list_is_not_merged() {
    let wanted = json!({"plugins": [{"type": "vcn-native"}]});
    for text in ["", "{", "[]", "{}", r#"{"plugins":{}}"#, r#"{"plugins":[1]}"#, r#"{"plugins":[{"type":1}]}"#] {
        assert_eq!(Merge { last: None, wanted: &wanted, familiar: &[] }.into_text(text), None, "{text}");
    }
}

#[test]
fn without_memory_nobody_is_accused() {
    let wanted = json!({"name": "vcn-native", "plugins": [{"type": "vcn-native"}]});
    let text = r#"{"name":"k8s-pod-network","plugins":[{"type":"istio-cni"}]}"#;
    let merged = Merge { last: None, wanted: &wanted, familiar: &[] }.into_text(text).unwrap();
    assert_eq!(merged.text, r#"{"name":"vcn-native","plugins":[{"type":"vcn-native"},{"type":"istio-cni"}]}"#);
    assert!(merged.disturbed.is_empty(), "{:?}", merged.disturbed);
}
