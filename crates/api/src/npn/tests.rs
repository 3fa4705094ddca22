//! Both shapes of a NativePodNetwork, from documents in `golden/npn`, and what each refusal says.

use std::error::Error;

use vcn::PerFamily;

use super::*;

fn golden(name: &str) -> NativePodNetwork {
    let path = format!("{}/golden/npn/{name}.json", env!("CARGO_MANIFEST_DIR"));
    NativePodNetwork::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn refusal(document: &str) -> String {
    let error = NativePodNetwork::parse(document.as_bytes()).unwrap_err();
    format!("{error}: {}", error.source().unwrap())
}

fn addressing(router: &str, subnet: &str, host: &str, pods: &[&str]) -> NpnAddressing {
    NpnAddressing {
        router: Some(router.parse().unwrap()),
        subnet: Some(subnet.parse().unwrap()),
        host: Some(host.parse().unwrap()),
        pods: pods.iter().map(|block| block.parse().unwrap()).collect(),
        subnets: vec![subnet.parse().unwrap()],
    }
}

/// The same in the legacy shape, which has no list of CIDR blocks.
fn legacy(router: &str, subnet: &str, host: &str, pods: &[&str]) -> NpnAddressing {
    NpnAddressing { subnets: vec![], ..addressing(router, subnet, host, pods) }
}

#[test]
fn the_legacy_shape_is_ipv4() {
    assert_eq!(
        golden("ipv4_legacy"),
        NativePodNetwork {
            name: Some("anyhqljtlegacy".into()),
            instance: "ocid1.instance.oc1.iad.anyhqljtlegacy".parse().unwrap(),
            state: NpnState::Success,
            reason: Some("COMPLETED".into()),
            vnics: vec![NpnVnic {
                vnic_id: "ocid1.vnic.oc1.iad.legacyone".parse().unwrap(),
                mac: "02:00:17:0a:0b:01".parse().unwrap(),
                addressing: PerFamily {
                    ipv4: Some(legacy(
                        "10.0.32.1",
                        "10.0.32.0/19",
                        "10.0.33.7",
                        &["10.0.33.8/32", "10.0.33.9/32", "10.0.40.200/32"]
                    )),
                    ipv6: None,
                },
                application_resources: vec![],
            }],
            unfinished: vec![],
        }
    );
    assert!(golden("ipv4_legacy").usable());
}

#[test]
fn dual_stack_takes_each_family_from_the_newer_shape_first() {
    let network = golden("dual_stack");
    assert_eq!(
        network.vnics[0].addressing,
        PerFamily {
            ipv4: Some(addressing(
                "10.0.32.1",
                "10.0.32.0/19",
                "10.0.33.7",
                &["10.0.33.8/32", "10.0.33.9/32", "10.0.33.10/32"]
            )),
            ipv6: Some(addressing(
                "fe80::200:17ff:fe00:1",
                "2603:c020:4000:ab00::/64",
                "2603:c020:4000:ab00::7",
                &["2603:c020:4000:ab00::8/128", "2603:c020:4000:ab00::9/128"]
            )),
        }
    );
    assert_eq!(
        network.vnics[1].addressing,
        PerFamily {
            ipv4: Some(legacy("10.0.32.1", "10.0.32.0/19", "10.0.34.7", &["10.0.34.8/32"])),
            ipv6: Some(addressing(
                "fe80::200:17ff:fe00:1",
                "2603:c020:4000:ab00::/64",
                "2603:c020:4000:ab00::1:7",
                &["2603:c020:4000:ab00::1:8/128"]
            )),
        }
    );
}

#[test]
fn all_cidr_blocks_of_a_subnet_are_read() {
    let vnic = r#"{"vnicId":"ocid1.vnic.oc1.iad.v","macAddress":"02:00:17:00:00:01",
        "subnetCidrs":[{"v4":"10.0.32.0/19","v6":"2603::/64"},{"v4":"10.1.0.0/24"}]}"#;
    let document =
        format!(r#"{{"spec":{{"id":"ocid1.instance.oc1.iad.x"}},"status":{{"state":"SUCCESS","vnics":[{vnic}]}}}}"#);
    let network = NativePodNetwork::parse(document.as_bytes()).unwrap();
    let at = network.vnics[0].addressing.ipv4.as_ref().unwrap();
    let subnets: Vec<String> = at.subnets.iter().map(ToString::to_string).collect();
    assert_eq!(
        (at.subnet.unwrap().to_string().as_str(), subnets),
        ("10.0.32.0/19", vec!["10.0.32.0/19".to_owned(), "10.1.0.0/24".to_owned()])
    );
}

/// No node has as many; what they cost would come back with every reconcile.
#[test]
fn a_document_with_more_than_any_node_has_is_refused() {
    let parse = |state: &str, vnics: usize, addresses: usize| {
        let list: Vec<String> =
            (0..addresses).map(|at| format!("\"10.{}.{}.{}\"", at >> 16, at >> 8 & 255, at & 255)).collect();
        let entry = |at: usize| {
            let list = if at == 0 { list.join(",") } else { String::new() };
            format!(r#"{{"vnicId":"ocid1.vnic.oc1.iad.v{at}","macAddress":"02:00:17:00:00:01","addresses":[{list}]}}"#)
        };
        let vnics: Vec<String> = (0..vnics).map(entry).collect();
        let status = format!(r#"{{"state":"{state}","vnics":[{}]}}"#, vnics.join(","));
        let document = format!(r#"{{"spec":{{"id":"ocid1.instance.oc1.iad.x"}},"status":{status}}}"#);
        NativePodNetwork::parse(document.as_bytes()).map_err(|error| error.source().unwrap().to_string())
    };
    assert_eq!(parse("SUCCESS", 1, MAX_POD_ADDRESSES).unwrap().vnics.len(), 1);
    assert_eq!(parse("SUCCESS", MAX_VNICS, 1).unwrap().vnics.len(), MAX_VNICS);
    for (vnics, addresses, why) in [
        (1, 40_000, "not a list with at most 4096 addresses for pods in all"),
        (1, MAX_POD_ADDRESSES + 1, "not a list with at most 4096 addresses for pods in all"),
        (MAX_VNICS + 1, 1, "not a list of at most 256 VNICs"),
    ] {
        for state in ["SUCCESS", "BACKOFF"] {
            let error = parse(state, vnics, addresses).unwrap_err();
            assert!(error.starts_with("status.vnics is [") && error.ends_with(why) && error.len() < 300, "{error}");
        }
    }
}

#[test]
fn ipv6_alone_says_nothing_about_ipv4() {
    let network = golden("ipv6_only");
    assert_eq!(
        network.vnics[0].addressing,
        PerFamily {
            ipv4: None,
            ipv6: Some(addressing(
                "fe80::200:17ff:fe00:2",
                "2603:c020:8:1::/64",
                "2603:c020:8:1::1",
                &["2603:c020:8:1::100/120"]
            )),
        }
    );
    assert!(network.usable());
}

#[test]
fn pod_addresses_can_be_a_block_and_vnic_application_only() {
    let network = golden("gva_cidr");
    let blocks: Vec<_> =
        network.vnics.iter().map(|v| v.addressing.ipv4.as_ref().unwrap().pods[0].to_string()).collect();
    assert_eq!(blocks, ["10.0.40.32/27", "10.0.64.16/28"]);
    assert!(network.vnics[0].serves_all_pods());
    assert!(!network.vnics[1].serves_all_pods());
    assert_eq!(network.vnics[1].application_resources, ["storage"]);
}

#[test]
fn network_in_backoff_is_unusable_and_keeps_its_reason() {
    let network = golden("backoff");
    assert_eq!((&network.state, network.reason.as_deref()), (&NpnState::Backoff, Some("FailedToCreatePrivateIP")));
    assert!(!network.usable());
    assert_eq!(network.vnics.len(), 1, "an entry without a MAC is left out");
    assert_eq!(network.vnics[0].addressing, PerFamily::default());
}

#[test]
fn an_object_without_status_is_not_usable() {
    let network = NativePodNetwork::parse(br#"{"spec":{"id":"ocid1.instance.oc1.iad.a"}}"#).unwrap();
    assert_eq!(network.state, NpnState::Unreported);
    assert!(!network.usable());
}

#[test]
fn success_without_vnics_and_unknown_states_are_not_usable() {
    for status in [r#"{"state":"SUCCESS"}"#, r#"{"state":"SUCCESS","vnics":[]}"#, r#"{"state":"PAUSED"}"#] {
        let document = format!(r#"{{"spec":{{"id":"ocid1.instance.oc1.iad.a"}},"status":{status}}}"#);
        assert!(!NativePodNetwork::parse(document.as_bytes()).unwrap().usable(), "{status}");
    }
}

#[test]
fn errors_name_the_field_and_the_value() {
    let with_vnic = |vnic: &str| {
        let status = format!(r#"{{"state":"SUCCESS","vnics":[{vnic}]}}"#);
        let spec = r#"{"id":"ocid1.instance.oc1.iad.a"}"#;
        refusal(&format!(r#"{{"metadata":{{"name":"n"}},"spec":{spec},"status":{status}}}"#))
    };
    let good = r#""vnicId":"ocid1.vnic.oc1.iad.v","macAddress":"02:00:17:00:00:01""#;
    let prefix = "reading the NativePodNetwork \"n\": ";
    for (vnic, complaint) in [
        (r#"{"vnicId":"ocid1.vnic.oc1.iad.v"}"#.to_owned(), "status.vnics[0].macAddress is missing"),
        (
            r#"{"vnicId":"v","macAddress":"02:00:17:00:00:01"}"#.to_owned(),
            "status.vnics[0].vnicId is \"v\", not an OCID",
        ),
        (
            r#"{"vnicId":"ocid1.vnic.oc1.iad.v","macAddress":"02:00:17"}"#.to_owned(),
            "status.vnics[0].macAddress is \"02:00:17\", not an Ethernet address",
        ),
        (
            format!(r#"{{{good},"podAddresses":[{{"v4":"10.0.0.1"}},{{"v4":"fe80::1"}}]}}"#),
            "status.vnics[0].podAddresses[1].v4 is \"fe80::1\", not an IPv4 address or CIDR block",
        ),
        (
            format!(r#"{{{good},"addresses":["10.0.0.1","10.0.0.2/255.255.0.0"]}}"#),
            "status.vnics[0].addresses[1] is \"10.0.0.2/255.255.0.0\", not an address or CIDR block",
        ),
        (format!(r#"{{{good},"routerIp":7}}"#), "status.vnics[0].routerIp is 7, not a text"),
        (format!(r#"{{{good},"nicConfiguration":[]}}"#), "status.vnics[0].nicConfiguration is [], not an object"),
    ] {
        assert_eq!(with_vnic(&vnic), format!("{prefix}{complaint}"));
    }
}

#[test]
fn incomplete_entry_still_names_its_vnic() {
    let entries = r#"[{"vnicId":"ocid1.vnic.oc1.iad.a","macAddress":"02:00:17:00:00:01"},
        {"vnicId":"ocid1.vnic.oc1.iad.b"},{"macAddress":"02:00:17:00:00:02"},{"vnicId":7}]"#;
    let document = format!(
        r#"{{"spec":{{"id":"ocid1.instance.oc1.iad.x"}},"status":{{"state":"IN_PROGRESS","vnics":{entries}}}}}"#
    );
    let network = NativePodNetwork::parse(document.as_bytes()).unwrap();
    let names = ["a", "b", "c"].map(|vnic| network.names(&format!("ocid1.vnic.oc1.iad.{vnic}").parse().unwrap()));
    assert_eq!(names, [true, true, false]);
    assert_eq!((network.vnics.len(), network.unfinished), (1, vec!["ocid1.vnic.oc1.iad.b".parse().unwrap()]));
}

#[test]
fn an_api_servers_refusal_is_not_taken_for_a_network() {
    assert_eq!(
        refusal(r#"{"kind":"Status","code":404}"#),
        r#"reading the NativePodNetwork "": kind is "Status", not "NativePodNetwork""#
    );
}

#[test]
fn garbage_is_an_error_and_long_values_are_shortened() {
    assert!(refusal("<html>").starts_with("reading a NativePodNetwork of 6 bytes as JSON: "));
    assert!(refusal(&format!(r#"{{"spec":{{"id":"{}"}}}}"#, "x".repeat(5000))).len() < 300);
}
