//! A call that is refused before the plugin reads anything is a line for the agent's log, too: that is where operators are
//! sent to look for the code.

use serde_json::json;
use telemetry::VerbRecord;

use crate::protocol::call::{Call, Machine};

/// What an operator searches.
fn words(record: &VerbRecord) -> (&str, u32, &str, &str, &str, Option<&str>) {
    let VerbRecord { verb, code, network, container_id, ifname, pod_name, .. } = record;
    (verb, *code, network, container_id, ifname, pod_name.as_deref())
}

#[test]
fn refused_call_is_logged_with_the_known_attachment_fields() {
    type Spoil = fn(&Machine, Call) -> Call;
    let cases: [(&str, u32, &str, Spoil); 5] = [
        ("ADD", 1, "vcn-native", |machine, call| machine.changed(&json!({"cniVersion": "0.2.0"}))(call)),
        ("ADD", 6, "vcn-native", |machine, call| machine.changed(&json!({"mtu": "large"}))(call)),
        ("DEL", 7, "", |machine, call| machine.changed(&json!({"name": ""}))(call)),
        ("CHECK", 7, "vcn-native", |machine, call| machine.changed(&json!({"prevResult": null}))(call)),
        ("ADD", 8, "vcn-native", |_, call| call.with("CNI_NETNS", "/proc/thread-self/ns/net")),
    ];
    for (verb, code, network, spoil) in cases {
        let machine = Machine::new();
        let answer = machine.answer(&spoil(&machine, machine.call(verb)));
        let records = machine.records();
        assert_eq!(records.iter().map(words).collect::<Vec<_>>(), [(verb, code, network, "c1", "eth0", Some("web-0"))]);
        assert!(answer.code() == u64::from(code) && records[0].message.contains(answer.message()), "{answer:?}");
    }
}

#[test]
fn call_with_invalid_variables_or_document_is_logged() {
    let machine = Machine::new();
    machine.answer(&machine.call("ADD").with("CNI_CONTAINERID", "wrong-variables").without("CNI_IFNAME"));
    machine.answer(&machine.call("GC").with("CNI_CONTAINERID", "wrong-document").stdin("{"));
    machine.answer(&machine.call("MOVE").with("CNI_CONTAINERID", "wrong-verb"));
    let records = machine.records();
    assert_eq!(
        records.iter().map(words).collect::<Vec<_>>(),
        [
            ("ADD", 4, "", "wrong-variables", "", Some("web-0")),
            ("GC", 6, "", "wrong-document", "eth0", Some("web-0")),
            ("unknown", 4, "", "wrong-verb", "eth0", Some("web-0")),
        ]
    );
}
