//! What a setting may list.

use super::*;

fn kinds(text: &str) -> Vec<String> {
    entries(text).unwrap().iter().map(|entry| kind(entry).unwrap().to_owned()).collect()
}

#[test]
fn names_and_json_may_be_listed() {
    assert_eq!(kinds(" portmap , bandwidth,tuning,vnic-attach,"), KNOWN);
    assert_eq!(kinds(""), Vec::<String>::new());
    let listed = entries(r#"["portmap", {"sysctl": {"net.core.somaxconn": "500"}, "type": "tuning"}]"#).unwrap();
    let tuning = listed.last().unwrap();
    assert_eq!(tuning.to_string(), r#"{"type":"tuning","sysctl":{"net.core.somaxconn":"500"}}"#);
}

/// It reads every number as a float64 and hands that to the plugin, whatever the text was.
#[test]
fn number_is_written_so_that_runtime_reads_same_value() {
    let value = |text: &str| text.parse::<f64>().unwrap().to_bits();
    for number in [
        "9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1.10",
        "1e3",
    ] {
        let entry = entries(&format!(r#"[{{"type":"x","n":{number}}}]"#)).unwrap().remove(0);
        let text = format!("{entry:#}");
        let (_, written) = text.rsplit_once(": ").unwrap();
        assert_eq!(value(written.trim_end_matches(['\n', '}'])), value(number), "{text}");
    }
    assert!(entries(r#"[{"type":"x","n":1e999}]"#).unwrap_err().starts_with("it is not a JSON array: "));
}

#[test]
fn invalid_chain_is_refused_with_the_valid_names() {
    let refused = |text: &str| entries(text).unwrap_err();
    assert!(refused("portmapp").contains("portmap, bandwidth, tuning, vnic-attach"));
    for wrong in ["[1]", r#"[{"snat":true}]"#, r#"[{"type":""}]"#, "[", "portmap,portmap", r#"[{"type":"vcn-native"}]"#]
    {
        assert!(entries(wrong).is_err(), "{wrong}");
    }
    let typed = refused(r#"["portmap", {"type": "a", "capabilities": ["mac"]}]"#);
    assert_eq!(typed, r#"its element 1 is refused by runtimes: capabilities is ["mac"], which must be an object"#);
}

#[test]
fn vnic_attach_is_given_the_pods_annotations() {
    let entry = vnic_attach_entry();
    assert_eq!(entry["capabilities"]["io.kubernetes.cri.pod-annotations"], true);
}
