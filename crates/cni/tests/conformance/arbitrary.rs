//! Whatever arrives, the answer is one of the two that there are, and never a panic.

use std::process::ExitCode;

use cni::Version;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::call::{Call, Outcome, config};
use crate::results::{full, written};

fn is_an_answer(outcome: &Outcome) {
    match outcome.exit == ExitCode::SUCCESS {
        false => drop(outcome.error()),
        true if outcome.stdout.is_empty() => outcome.silent(),
        true => drop(outcome.result()),
    }
}

fn verb() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"])
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

/// Any JSON, with the protocol's own keys in it often enough.
fn json_value() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        prop::sample::select(vec![
            "cniVersion",
            "name",
            "type",
            "ipam",
            "dns",
            "prevResult",
            "runtimeConfig",
            "interfaces",
            "ips",
            "routes",
            "address",
            "interface",
            "mac",
            "dst",
            "gw",
            "nameservers",
            "containerID",
            "ifname",
            "disableGC",
            "mtu",
            "cni.dev/valid-attachments",
            "io.kubernetes.cri.pod-annotations",
            "args",
            "cni",
            "sandbox",
        ])
        .prop_map(str::to_owned),
        text(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["10.0.0.1/32", "fd00::1/128", "1.1.0", "eth0", "", "true"]).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..8).prop_map(|fields| Map::from_iter(fields).into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_on_stdin_get_an_answer(verb in verb(), stdin in prop::collection::vec(any::<u8>(), 0..2000)) {
        is_an_answer(&Call::of(verb).stdin(stdin).run());
    }

    #[test]
    fn a_damaged_document_gets_an_answer(verb in verb(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut: bool) {
        let mut document = json!({"cniVersion": "1.1.0", "name": "n", "prevResult": written(&full(), Version::V1_1_0)})
            .to_string()
            .into_bytes();
        let at = at.index(document.len());
        document[at] = byte;
        if cut {
            document.truncate(at);
        }
        is_an_answer(&Call::of(verb).stdin(document).run());
    }

    #[test]
    fn arbitrary_json_gets_an_answer(verb in verb(), fields in prop::collection::vec(json_value(), 4)) {
        let mut document = config("1.1.0");
        for (key, value) in ["prevResult", "runtimeConfig", "dns", "cni.dev/valid-attachments"].into_iter().zip(fields) {
            document[key] = value;
        }
        is_an_answer(&Call::of(verb).config(&document).run());
    }

    #[test]
    fn arbitrary_prev_result_can_be_read_extended_and_returned(value in json_value(), version in 0..4_usize) {
        let mut document = config(Version::ALL[version].as_str());
        document["prevResult"] = if value.is_object() { value } else { json!({"interfaces": value}) };
        let outcome = Call::of("ADD").config(&document).run();
        if let [crate::noop::PluginCall::Add(request)] = outcome.calls.as_slice()
            && let Some(mut previous) = request.config.prev_result.clone()
        {
            let before = previous.read();
            let index = previous.add_interface(&full().interfaces[0]);
            prop_assert_eq!(index, before.interfaces.len());
            prop_assert_eq!(previous.read().interfaces.len(), index + 1);
        }
        is_an_answer(&outcome);
    }

    #[test]
    fn arbitrary_variables_get_an_answer(
        verb in verb(),
        name in prop::sample::select(vec!["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"]),
        value in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let value: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(value);
        let outcome = Call::of(verb).with(name, value).run();
        prop_assume!(outcome.stderr.is_empty());
        is_an_answer(&outcome);
    }
}
