//! A result in each version of the protocol, against the files in `tests/golden`.

use cni::{AddResult, Dns, Interface, Ip, Route, Success, Version};
use serde_json::Value;
use vcn::Mtu;

/// A result that uses every field there is.
pub(crate) fn full() -> Success {
    let sandbox = "/run/netns/pod".to_owned();
    Success {
        interfaces: vec![
            Interface {
                name: "vcn0123456789ab".into(),
                mac: Some("02:00:17:00:00:01".parse().unwrap()),
                mtu: Some(Mtu(9000)),
                ..Interface::default()
            },
            Interface {
                name: "eth0".into(),
                mac: Some("02:00:17:00:00:02".parse().unwrap()),
                mtu: Some(Mtu(9000)),
                sandbox: sandbox.clone(),
            },
            Interface { name: "net1".into(), sandbox, ..Interface::default() },
        ],
        ips: vec![
            Ip {
                address: "10.0.0.5/32".parse().unwrap(),
                gateway: Some("169.254.1.1".parse().unwrap()),
                interface: Some(1),
            },
            Ip {
                address: "fd00::5/128".parse().unwrap(),
                gateway: Some("fe80::1".parse().unwrap()),
                interface: Some(1),
            },
            Ip { address: "10.1.0.7/24".parse().unwrap(), gateway: None, interface: None },
        ],
        routes: vec![
            Route { dst: "0.0.0.0/0".parse().unwrap(), gw: Some("169.254.1.1".parse().unwrap()) },
            Route { dst: "fd00:1::/64".parse().unwrap(), gw: None },
        ],
        dns: Dns {
            nameservers: vec!["169.254.169.254".into(), "fe80::1%eth0".into()],
            domain: Some("example.oraclevcn.com".into()),
            search: vec!["a".into(), "b".into()],
            options: vec!["ndots:5".into()],
        },
    }
}

/// A result as the document that it is written as: its fields in order.
pub(crate) fn written(success: &Success, version: Version) -> Value {
    let reply = AddResult::from(success.clone()).to_json(version);
    assert!(!reply.contains('\n'), "one line: {reply}");
    serde_json::from_str(&reply).unwrap()
}

#[test]
fn result_has_only_the_fields_of_its_version() {
    for (version, golden) in [
        (Version::V0_3_1, include_str!("../golden/0.3.1.json")),
        (Version::V0_4_0, include_str!("../golden/0.4.0.json")),
        (Version::V1_0_0, include_str!("../golden/1.0.0.json")),
        (Version::V1_1_0, include_str!("../golden/1.1.0.json")),
    ] {
        let written = serde_json::to_string_pretty(&written(&full(), version)).unwrap();
        assert_eq!(format!("{written}\n"), golden, "{version}");
    }
}

#[test]
fn an_empty_result_is_sound_too() {
    let expected: Value = serde_json::from_str(include_str!("../golden/empty.json")).unwrap();
    assert_eq!(written(&Success::default(), Version::V1_1_0), expected);
}
