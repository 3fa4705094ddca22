//! The shapes in which others leave our configuration: `golden/merge/<sentence>/{last,disk,wanted,merged}.conflist`, and
//! what has to hold for all of them.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
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

/// `last` are what may have been written last.
fn merged(last: &[&str], disk: &str, wanted: &str) -> Merged {
    let last: Vec<Value> = last.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let wanted = serde_json::from_str(wanted).unwrap();
    let last = Asked::new(last.iter().map(Some).collect());
    Merge { last, wanted: &wanted, familiar: &[] }.into_text(disk).unwrap()
}

#[test]
fn golden() {
    let cases = cases();
    assert!(cases.len() >= 10);
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let (last, disk) = (read(&case, "last.conflist"), read(&case, "disk.conflist").unwrap());
        // Of an installer that was killed before its own came to its place.
        let earlier = read(&case, "earlier.conflist");
        let wanted = read(&case, "wanted.conflist").or_else(|| last.clone()).expect("what is wanted");
        let both: Vec<&str> = last.iter().chain(&earlier).map(String::as_str).collect();
        let Merged { text, foreign, provided, disturbed } = merged(&both, &disk, &wanted);
        let told = format!("foreign: {foreign:?}\nprovided: {provided:?}\ndisturbed: {disturbed:#?}\n");
        if std::env::var_os("WRITE_GOLDEN").is_some() {
            fs::write(case.join("merged.conflist"), &text).unwrap();
            fs::write(case.join("told.txt"), &told).unwrap();
        }
        assert_eq!(text, read(&case, "merged.conflist").unwrap_or_else(|| disk.clone()), "{name}");
        assert_eq!(told, read(&case, "told.txt").unwrap(), "{name}");

        let again = merged(&[&wanted], &text, &wanted);
        assert_eq!((again.text, again.disturbed), (text, vec![]), "{name}: merged is merged");
    }
}

#[test]
fn what_is_no_list_is_not_merged() {
    let wanted = json!({"plugins": [{"type": "vcn-native"}]});
    for text in ["", "{", "[]", "{}", r#"{"plugins":{}}"#, r#"{"plugins":[1]}"#, r#"{"plugins":[{"type":1}]}"#] {
        assert_eq!(Merge { last: Asked::default(), wanted: &wanted, familiar: &[] }.into_text(text), None, "{text}");
    }
}

#[test]
fn without_memory_nobody_is_accused() {
    let wanted = json!({"name": "vcn-native", "plugins": [{"type": "vcn-native"}]});
    let text = r#"{"name":"k8s-pod-network","plugins":[{"type":"istio-cni"}]}"#;
    let merged = Merge { last: Asked::default(), wanted: &wanted, familiar: &[] }.into_text(text).unwrap();
    assert_eq!(merged.text, r#"{"name":"vcn-native","plugins":[{"type":"vcn-native"},{"type":"istio-cni"}]}"#);
    assert!(merged.disturbed.is_empty(), "{:?}", merged.disturbed);
}

/// What others put into a list: plugins by number, ours left out or not, in one of the manners in which texts are written.
fn text(before: &[u8], behind: &[u8], ours: bool, manner: u8) -> String {
    let theirs = |number: &u8| json!({"type": format!("theirs-{number}"), "n": number});
    let ours = ours.then(|| json!({"type": "vcn-native", "x": 1}));
    let plugins: Vec<Value> = before.iter().map(theirs).chain(ours).chain(behind.iter().map(theirs)).collect();
    let document = json!({"z": [1.5, {}], "plugins": plugins, "name": "vcn-native", "a": {"plugins": []}});
    match manner % 4 {
        0 => document.to_string(),
        1 => format!("{document:#}\n"),
        2 => format!("\n {document:#} ").replace("  ", "\t").replace('\n', "\r\n"),
        _ => document.to_string().replace(',', " ,\n").replace('[', "[ ").replace(':', " : "),
    }
}

proptest! {
    #[test]
    fn theirs_stay_in_their_order_ours_is_there_once_and_it_ends(
        before in prop::collection::vec(0_u8..100, 0..3),
        behind in prop::collection::vec(0_u8..100, 0..4),
        (ours, known) in any::<(bool, bool)>(),
        manner in any::<u8>(),
    ) {
        let disk = text(&before, &behind, ours, manner);
        let wanted = json!({"name": "vcn-native", "plugins": [{"type": "vcn-native"}, {"type": "portmap", "snat": true}]});
        let last = Asked::new(known.then_some(Some(&wanted)).into_iter().collect());
        let merge = Merge { last, wanted: &wanted, familiar: &[] };
        let merged = merge.clone().into_text(&disk).unwrap();
        let (old, new): (Value, Value) =
            (serde_json::from_str(&disk).unwrap(), serde_json::from_str(&merged.text).unwrap());
        prop_assert_eq!((&old["z"], &old["a"]), (&new["z"], &new["a"]));
        let kinds = |document: &Value| {
            listed(document).into_iter().map(|(kind, _)| kind.to_owned()).collect::<Vec<_>>()
        };
        let theirs = |kinds: Vec<String>| kinds.into_iter().filter(|kind| kind.starts_with("theirs")).collect::<Vec<_>>();
        prop_assert_eq!(theirs(kinds(&old)), theirs(kinds(&new)));
        for kind in ["vcn-native", "portmap"] {
            prop_assert_eq!(kinds(&new).iter().filter(|name| *name == kind).count(), 1);
        }
        let again = merge.into_text(&merged.text).unwrap();
        prop_assert_eq!(again.text, merged.text);
        prop_assert!(again.disturbed.is_empty());
    }
}
