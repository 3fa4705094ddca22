//! Fields of the configuration that this plugin alone judges.

use serde_json::{Value, json};

use crate::protocol::call::{Codes, Machine, SOUND};

#[test]
fn wrong_mtu_is_named_and_refused_unless_pods_end_and_state_dir_is_ignored() {
    const REFUSED: Codes = [6, 0, 6, 6, 0, 0];
    let (machine, elsewhere) = (Machine::new(), tempfile::tempdir().unwrap());
    for (mtu, codes, complaint) in [
        (json!(9000), SOUND, ""),
        (json!("9000"), REFUSED, "mtu: invalid type"),
        (json!(68), REFUSED, "mtu: an MTU of 68 is below 1280"),
    ] {
        let spoil = machine.changed(&json!({"mtu": mtu, "stateDir": elsewhere.path()}));
        assert_eq!(machine.codes(&spoil), codes, "{mtu}");
        let answer = machine.answer(&spoil(machine.call("ADD")));
        assert!(answer.message().contains(complaint), "{answer:?}");
    }
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn foreign_plugin_field_is_named_and_refused_only_by_add() {
    let machine = Machine::new();
    #[rustfmt::skip]
    let table: [(Value, Codes); 11] = [
        (json!({"ipam": {"type": "host-local"}}),                      [2, 0, 108, 50, 0, 0]),
        (json!({"runtimeConfig": {"ips": ["10.0.0.9"]}}),              [2, 0, 108, 50, 0, 0]),
        (json!({"runtimeConfig": {"mac": "02:00:17:00:00:01"}}),       [2, 0, 108, 50, 0, 0]),
        (json!({"args": {"cni": {"ips": ["10.0.0.9"]}}}),              [2, 0, 108, 50, 0, 0]),
        (json!({"args": {"cni": {"mac": "02:00:17:00:00:01"}}}),       [2, 0, 108, 50, 0, 0]),
        (json!({"args": {"cni": {"mac": "02:00:17:00:00:01"}}, "tuning": true}), SOUND),
        (json!({"runtimeConfig": {"ips": null}, "args": {"cni": {"ips": [""], "mac": null}}}), SOUND),
        (json!({"ipam": {"type": ""}}),                                SOUND),
        (json!({"ipam": {}}),                                          SOUND),
        (json!({"ipam": {"addresses": [{"address": "10.0.0.9/24"}]}}), [2, 0, 108, 50, 0, 0]),
        (json!({"runtimeConfig": {"ips": [], "mac": "", "portMappings": [{"hostPort": 80}]}}), SOUND),
    ];
    for (changes, expected) in &table {
        let spoil = machine.changed(changes);
        assert_eq!(machine.codes(&spoil), *expected, "{changes} (ADD, DEL, CHECK, STATUS, GC, VERSION)");
        let answer = machine.answer(&spoil(machine.call("ADD")));
        let named = answer.message().contains("ipam.type is \"host-local\"")
            || answer.message().contains("ipam is {\"addresses\":[{\"address\":\"10.0.0.9/24\"}]}")
            || answer.message().contains(".ips is [\"10.0.0.9\"]");
        assert_eq!(named || answer.message().contains("mac is \"02:"), answer.code() == 2, "{answer:?}");
    }
}

#[test]
fn address_or_mac_in_cni_args_is_refused_only_by_add() {
    const REFUSED: Codes = [2, 0, 108, 50, 0, 0];
    let machine = Machine::new();
    for (args, tuning, codes, complaint) in [
        ("IP=10.0.0.9", true, REFUSED, "IP of CNI_ARGS is \"10.0.0.9\", which vcn-native cannot do"),
        ("MAC=02:00:17:00:00:01", false, REFUSED, "MAC of CNI_ARGS is \"02:00:17:00:00:01\", which vcn-native"),
        ("IgnoreUnknown=1;MAC=02:00:17:00:00:01", true, SOUND, ""),
        ("IP=;MAC=", false, SOUND, ""),
    ] {
        let changed = machine.changed(&json!({ "tuning": tuning }));
        let spoil = |call: crate::protocol::call::Call| changed(call).with("CNI_ARGS", args);
        assert_eq!(machine.codes(spoil), codes, "{args}");
        let answer = machine.answer(&spoil(machine.call("ADD")));
        assert!(answer.message().contains(complaint), "{answer:?}");
    }
}
