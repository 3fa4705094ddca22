//! Every kind of document on stdin, under every verb.

use serde_json::{Value, json};

use crate::protocol::call::{Answer, Call, Codes, Machine, SOUND, VERBS};

/// Where the document is not to be had at all.
const UNREADABLE: Codes = [6, 6, 6, 6, 6, 0];

#[test]
fn malformed_document_returns_code_6_for_every_verb() {
    let machine = Machine::new();
    let config = machine.config().to_string();
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let many = format!("{{\"x\":[{}0]}}", "0,".repeat(1 << 18));
    let huge = format!("{{\"x\":\"{}\"}}", "x".repeat(10 << 20));
    let cases: [(&str, Vec<u8>, &str); 19] = [
        ("nothing", Vec::new(), "stdin is empty"),
        ("blanks", b" \r\n\t".to_vec(), "stdin is empty"),
        ("a NUL", b"\0".to_vec(), "is not JSON: expected value"),
        ("one byte", b"{".to_vec(), "is not JSON: EOF"),
        ("half of it", config.as_bytes()[..config.len() / 2].to_vec(), "is not JSON: EOF"),
        ("two of it", config.repeat(2).into_bytes(), "trailing characters"),
        ("a byte order mark", [b"\xef\xbb\xbf", config.as_bytes()].concat(), "begins with a byte order mark"),
        ("UTF-16", config.encode_utf16().flat_map(u16::to_le_bytes).collect(), "is not JSON: key must be a string"),
        ("UTF-16 with its mark", b"\xff\xfe{\0}\0".to_vec(), "is not UTF-8 after byte 0"),
        ("Latin-1", b"{\"name\":\"\xe9\"}".to_vec(), "is not UTF-8 after byte 9"),
        ("a lone surrogate", br#"{"name":"\ud800"}"#.to_vec(), "is not JSON: unexpected end of hex escape"),
        ("YAML", b"cniVersion: 1.0.0\n".to_vec(), "is not JSON: expected value"),
        ("a list", b"[]".to_vec(), "it is an array, it must be an object"),
        ("null", b"null".to_vec(), "it is null, it must be an object"),
        ("a text", b"\"{}\"".to_vec(), "it is a string, it must be an object"),
        ("deep lists", deep("[", "]").into_bytes(), "recursion limit exceeded"),
        ("deep objects", deep("{\"a\":", "}").into_bytes(), "recursion limit exceeded"),
        ("many parts", many.into_bytes(), "has more than 262144 fields and items"),
        ("10 MiB", huge.into_bytes(), "is larger than 8 MiB"),
    ];
    for (case, stdin, complaint) in &cases {
        let answers = VERBS.map(|verb| machine.answer(&machine.call(verb).stdin(stdin.as_slice())));
        assert_eq!(answers.each_ref().map(Answer::code), UNREADABLE, "{case}");
        assert!(answers[0].message().contains(complaint), "{case}: {:?}", answers[0]);
    }
}

#[test]
fn a_document_cut_anywhere_is_code_6() {
    let machine = Machine::new();
    let config = machine.config().to_string();
    for (end, verb) in (1..config.len()).step_by(3).zip(VERBS[..5].iter().cycle()) {
        let answer = machine.answer(&machine.call(verb).stdin(&config.as_bytes()[..end]));
        assert_eq!(answer.code(), 6, "{verb} cut at {end}: {answer:?}");
    }
}

/// The configuration with other values; `null` takes a key away.
fn changed(machine: &Machine, changes: &Value) -> impl Fn(Call) -> Call {
    let mut config = machine.config();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(config.as_object_mut().unwrap().remove(key)),
            value => config[key] = value.clone(),
        }
    }
    move |call| call.stdin(config.to_string())
}

#[test]
fn field_of_wrong_type_returns_the_code_in_the_table() {
    let machine = Machine::new();
    // A part that is optional for those who clean up, and wrong.
    const OPTIONAL: Codes = [6, 0, 6, 6, 0, 0];
    #[rustfmt::skip]
    let table: [(Value, Codes); 27] = [
        // What is changed                                    ADD DEL CHECK STATUS GC VERSION
        (json!({}),                                           SOUND),
        (json!({"unknown": {"to": ["us"]}}),                  SOUND),
        (json!({"cniVersion": 1}),                            [6, 6, 6, 6, 6, 0]),
        (json!({"cniVersion": null}),                         [1, 1, 1, 1, 1, 0]),
        (json!({"cniVersion": "0.2.0"}),                      [1, 1, 1, 1, 1, 0]),
        (json!({"cniVersion": "9.9.9"}),                      [1, 1, 1, 1, 1, 0]),
        (json!({"cniVersion": "0.3.1"}),                      [11, 0, 1, 1, 1, 0]),
        (json!({"cniVersion": "0.4.0"}),                      [11, 0, 108, 1, 1, 0]),
        (json!({"cniVersion": "1.0.0"}),                      [11, 0, 108, 1, 1, 0]),
        (json!({"name": 1}),                                  [6, 6, 6, 6, 6, 0]),
        (json!({"name": null}),                               [7, 7, 7, 7, 7, 0]),
        (json!({"name": ""}),                                 [7, 7, 7, 7, 7, 0]),
        (json!({"name": "../x"}),                             [7, 7, 7, 7, 7, 0]),
        (json!({"type": ["vcn-native"]}),                     OPTIONAL),
        (json!({"dns": "10.0.0.2"}),                          OPTIONAL),
        (json!({"dns": {"nameservers": [1]}}),                OPTIONAL),
        (json!({"ipam": []}),                                 OPTIONAL),
        (json!({"runtimeConfig": []}),                        OPTIONAL),
        (json!({"prevResult": "x"}),                          OPTIONAL),
        (json!({"prevResult": null}),                         [11, 0, 7, 50, 0, 0]),
        (json!({"disableGC": 1}),                             [6, 0, 6, 6, 6, 0]),
        (json!({"disableGC": "perhaps"}),                     [6, 0, 6, 6, 6, 0]),
        (json!({"cni.dev/valid-attachments": null}),          [11, 0, 108, 50, 7, 0]),
        (json!({"cni.dev/valid-attachments": {}}),            [11, 0, 108, 50, 6, 0]),
        (json!({"cni.dev/valid-attachments": [1]}),           [11, 0, 108, 50, 6, 0]),
        (json!({"cni.dev/valid-attachments": [{"ifname": 1}]}), [11, 0, 108, 50, 6, 0]),
        (json!({"cniVersion": "1.1.0", "args": 7}),           SOUND),
    ];
    for (changes, expected) in &table {
        let codes = machine.codes(changed(&machine, changes));
        assert_eq!(codes, *expected, "{changes} (ADD, DEL, CHECK, STATUS, GC, VERSION)");
    }
}

#[test]
fn own_field_of_wrong_type_returns_named_code_6_error() {
    let machine = Machine::new();
    for (changes, complaint) in [
        (json!({"mtu": "9000"}), "mtu: invalid type"),
        (json!({"mtu": -1}), "mtu: invalid value"),
        (json!({"mtu": 1.5}), "mtu: invalid type"),
        (json!({"mtu": 68}), "an MTU of 68 is below 1280"),
    ] {
        for verb in ["ADD", "CHECK", "STATUS"] {
            let answer = machine.answer(&changed(&machine, &changes)(machine.call(verb)));
            assert_eq!(answer.code(), 6, "{verb} {changes}: {answer:?}");
            assert!(answer.message().contains(complaint), "{answer:?}");
        }
    }
}

#[test]
fn foreign_plugin_field_is_named_and_refused_only_by_add() {
    let machine = Machine::new();
    #[rustfmt::skip]
    let table: [(Value, Codes); 8] = [
        (json!({"ipam": {"type": "host-local"}}),                      [2, 0, 108, 50, 0, 0]),
        (json!({"runtimeConfig": {"ips": ["10.0.0.9"]}}),              [2, 0, 108, 50, 0, 0]),
        (json!({"runtimeConfig": {"mac": "02:00:17:00:00:01"}}),       [2, 0, 108, 50, 0, 0]),
        (json!({"args": {"cni": {"ips": ["10.0.0.9"]}}}),              [2, 0, 108, 50, 0, 0]),
        (json!({"args": {"cni": {"mac": "02:00:17:00:00:01"}}}),       SOUND),
        (json!({"ipam": {"type": ""}}),                                SOUND),
        (json!({"ipam": {}}),                                          SOUND),
        (json!({"runtimeConfig": {"ips": [], "mac": "", "portMappings": [{"hostPort": 80}]}}), SOUND),
    ];
    for (changes, expected) in &table {
        let spoil = changed(&machine, changes);
        assert_eq!(machine.codes(&spoil), *expected, "{changes} (ADD, DEL, CHECK, STATUS, GC, VERSION)");
        let answer = machine.answer(&spoil(machine.call("ADD")));
        let named = answer.message().contains("ipam.type is \"host-local\"")
            || answer.message().contains(".ips is [\"10.0.0.9\"]");
        assert_eq!(named || answer.message().contains("mac is \"02:"), answer.code() == 2, "{answer:?}");
    }
}

#[test]
fn config_cannot_set_state_dir_and_del_ignores_its_faults() {
    let machine = Machine::new();
    let elsewhere = tempfile::tempdir().unwrap();
    for (verb, mtu, code) in [("ADD", json!(9000), 11), ("DEL", json!("x"), 0), ("GC", json!("x"), 0)] {
        let changes = json!({"stateDir": elsewhere.path(), "mtu": mtu});
        assert_eq!(machine.answer(&changed(&machine, &changes)(machine.call(verb))).code(), code, "{verb}");
    }
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn error_uses_version_of_the_configuration_once_it_is_known() {
    let machine = Machine::new();
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let answer = machine.answer(&changed(&machine, &json!({"cniVersion": version}))(machine.call("ADD")));
        assert!(matches!(&answer, Answer::Error { version: answered, .. } if answered == version), "{answer:?}");
    }
    let answer = machine.answer(&machine.call("ADD").stdin("{"));
    assert!(matches!(&answer, Answer::Error { version, .. } if version == "1.1.0"), "{answer:?}");
}
