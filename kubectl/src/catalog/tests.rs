//! Every word that `explain` knows has a meaning and a next step, and every error code of the plugins is one.

use super::*;

#[test]
fn every_word_is_found_and_says_what_to_do() {
    let entries = entries();
    for entry in &entries {
        assert!(find(&entries, &entry.word).contains(entry), "{entry:?}");
        assert!(entry.parts.iter().any(|part| part.label == "Do" && !part.text.is_empty()), "{entry:?}");
        let is_plain = |text: &str| !text.is_empty() && !text.contains("](") && !text.contains('\n');
        assert!(entry.parts.iter().all(|part| is_plain(&part.text)), "{entry:?}");
    }
    let codes: Vec<_> = entries.iter().filter(|entry| entry.kind.starts_with("error code")).collect();
    assert_eq!(codes.iter().map(|entry| entry.word.as_str()).collect::<Vec<_>>(), defined_codes());
    for code in codes {
        let labels: Vec<_> = code.parts.iter().map(|part| part.label.as_str()).collect();
        assert_eq!(labels, ["When", "Why", "Do"], "{}", code.word);
    }
}

/// The numbers of the constants that the plugins' crates define, in ascending order.
fn defined_codes() -> Vec<&'static str> {
    const SOURCES: [&str; 2] =
        [include_str!("../../../crates/cni/src/error.rs"), include_str!("../../../crates/attachment/src/failure.rs")];
    let number = |line: &'static str| {
        let (_, value) = line.trim_start().strip_prefix("pub const ")?.split_once(" = ")?;
        value.split_once('(')?.1.strip_suffix(");")
    };
    SOURCES.iter().flat_map(|source| source.lines()).filter_map(number).collect()
}

/// Every text passes this table, so a new text needs no exception: a condition comes after its verb, too.
#[test]
fn next_step_begins_with_a_verb() {
    const VERBS: &str = "Accept Add Allow Apply Change Check Compare Correct Delete Disable Drain End Exclude Find Follow Give Install Join \
         Leave Let Load Look Lower Make Name Put Raise Read Reboot Remove Rename Replace Report Request Rescan Reserve Reset Restart Restore \
         Run See Set Slow Start Stop Update Use Wait Watch";
    let verbs: Vec<String> = VERBS.split_whitespace().map(str::to_lowercase).collect();
    let mut others = Vec::new();
    for entry in entries() {
        let part = |label| entry.parts.iter().find(|part| part.label == label).map_or("", |part| part.text.as_str());
        let is_healthy =
            part("Status").starts_with("True") || ["Done", "NoCriticalProblem"].contains(&entry.word.as_str());
        let is_information = part("Rules").starts_with("information");
        let step = part("Do");
        let word = step.split(|char: char| !char.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        // NVIDIA's own advice about some codes.
        let is_harmless = entry.kind == XID && word == "nothing";
        let is_excused = is_healthy && step.starts_with("Nothing") || is_information && step == "-" || is_harmless;
        if !is_excused && !verbs.contains(&word) {
            others.push(format!("{}: {step}", entry.word));
        }
    }
    assert_eq!(others, [""; 0]);
}

#[test]
fn words_are_found_by_alias_and_in_any_case() {
    let entries = entries();
    let kinds = |word: &str| find(&entries, word).iter().map(|entry| entry.kind).collect::<Vec<_>>();
    assert_eq!(kinds("no_address"), ["error code of the CNI plugins"]);
    assert_eq!(kinds("oke.oraclecloud.com/networkready"), ["condition of a Node"]);
    assert_eq!(kinds("Ready"), ["reason of a VnicAttachment", "reason of a VnicProfile"]);
    assert_eq!((kinds("xid 79"), kinds("XID79")), (vec![XID], vec![XID]));
    assert_eq!(kinds("XidNodeReboot"), ["reason of a Node's condition"]);
    assert_eq!(kinds("conntrack-use"), ["health signal"]);
    assert_eq!(kinds("conntrack_nearly_full"), ["health rule"]);
}

#[test]
fn codes_of_nvidia_are_explained_without_a_cluster() {
    let text = |word: &str| {
        let found = crate::commands::explain::run(word).entries;
        found.iter().flat_map(|entry| &entry.parts).map(|part| part.text.clone()).collect::<Vec<_>>().join(" ")
    };
    let xid = text("xid 79");
    assert!(xid.contains("fallen off the bus") && xid.contains("reboot") && xid.contains("RESTART_BM"), "{xid}");
    assert!(text("Xid 99999").contains("does not judge"));
    assert!(text("sxid 22003").contains("ends all its traffic") && text("SXid 20034").contains("Non-fatal"));
    assert_eq!((text("xid"), text("xid x"), text("sxid 1234567")), (String::new(), String::new(), String::new()));
}

#[test]
fn near_words_are_suggested() {
    let entries = entries();
    assert_eq!(near(&entries, "SubnetFul").first().map(String::as_str), Some("SubnetFull"));
    assert!(near(&entries, "conntrak_use").contains(&"conntrack_use".to_owned()));
    assert!(near(&entries, "kubelet").contains(&"kubelet_latency".to_owned()));
    assert_eq!(near(&entries, "zzzzzz"), Vec::<String>::new());
}
