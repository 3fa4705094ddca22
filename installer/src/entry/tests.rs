//! What a setting may list.

use super::*;

fn kinds(text: &str) -> Vec<String> {
    Entry::list(text).unwrap().into_iter().map(|entry| entry.kind).collect()
}

#[test]
fn names_and_json_may_be_listed() {
    assert_eq!(kinds(" portmap , bandwidth,tuning,vnic-attach,"), KNOWN);
    assert_eq!(kinds(""), Vec::<String>::new());
    let listed = Entry::list(r#"["portmap", {"sysctl": {"net.core.somaxconn": "500"}, "type": "tuning"}]"#).unwrap();
    let tuning = listed.last().unwrap().to_json();
    assert_eq!(tuning.to_string(), r#"{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}}"#);
}

#[test]
fn what_makes_no_chain_is_refused_with_the_right_names() {
    let refused = |text: &str| Entry::list(text).unwrap_err().to_string();
    assert!(refused("portmapp").contains("portmap, bandwidth, tuning, vnic-attach"));
    for wrong in ["[1]", r#"[{"snat":true}]"#, r#"[{"type":""}]"#, "[", "portmap,portmap", r#"[{"type":"vcn-native"}]"#]
    {
        assert!(Entry::list(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn vnic_attach_is_given_the_pods_annotations() {
    let entry = Entry::named("vnic-attach").unwrap().to_json();
    assert_eq!(entry["capabilities"]["io.kubernetes.cri.pod-annotations"], true);
}
