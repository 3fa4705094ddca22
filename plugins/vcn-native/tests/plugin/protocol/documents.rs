//! Fields of the configuration that this plugin alone judges.

use serde_json::{Value, json};

use crate::protocol::call::{Call, Codes, Machine, SOUND};

/// The configuration with other values.
fn changed(machine: &Machine, changes: &Value) -> impl Fn(Call) -> Call {
    let mut config = machine.config();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    move |call| call.stdin(config.to_string())
}

#[test]
fn wrong_mtu_is_named_and_refused_unless_pods_end() {
    let machine = Machine::new();
    for (mtu, complaint) in [(json!("9000"), "mtu: invalid type"), (json!(68), "mtu: an MTU of 68 is below 1280")] {
        let change = json!({"mtu": mtu});
        let spoil = changed(&machine, &change);
        assert_eq!(machine.codes(&spoil), [6, 0, 6, 6, 0, 0], "{mtu}");
        let answer = machine.answer(&spoil(machine.call("ADD")));
        assert!(answer.message().contains(complaint), "{answer:?}");
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
