//! Replies of virtual machines and bare metal, from documents in `golden`, and what each refusal says.

use std::error::Error as _;

use vcn::MachineKind;

use super::*;

const URL: &str = "http://imds/opc/v2/x/";
const VM: &[u8] = include_bytes!("../../golden/vnics_vm.json");
const BM: &[u8] = include_bytes!("../../golden/vnics_bm.json");

fn place(address: &str, subnet: &str, router: &str) -> Option<SubnetAddressing> {
    Some(SubnetAddressing {
        subnet: subnet.parse().unwrap(),
        router: router.parse().unwrap(),
        address: address.parse().unwrap(),
        others: Vec::new(),
    })
}

fn refusal(result: Result<impl std::fmt::Debug, Error>) -> String {
    let error = result.unwrap_err();
    format!("{error}: {}", error.source().unwrap())
}

#[test]
fn an_instance_is_read_without_its_secrets() {
    assert_eq!(
        instance(URL, include_bytes!("../../golden/instance.json")).unwrap(),
        Instance {
            id: "ocid1.instance.oc1.iad.anyhqljtvm".parse().unwrap(),
            shape: "VM.Standard.E5.Flex".into(),
            region: "us-ashburn-1".into(),
            max_vnic_attachments: Some(4),
            metadata: [("oke-native-pod-networking", "true"), ("oke-max-pods", "31"), ("ip-families", "IPv4,IPv6")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        }
    );
}

#[test]
fn the_region_is_canonical_whatever_form_is_given() {
    for (fields, region) in [
        (r#""region":"iad""#, "us-ashburn-1"),
        (r#""region":"phx""#, "us-phoenix-1"),
        (r#""region":"eu-frankfurt-1""#, "eu-frankfurt-1"),
        (r#""region":"iad","regionInfo":{"regionIdentifier":"us-ashburn-1"}"#, "us-ashburn-1"),
        (r#""region":"xyz","canonicalRegionName":"ap-tokyo-1""#, "ap-tokyo-1"),
    ] {
        let body = format!(r#"{{"id":"ocid1.instance.oc1.iad.a","shape":"VM.X",{fields}}}"#);
        let instance = instance(URL, body.as_bytes()).unwrap();
        assert_eq!((instance.region.as_str(), instance.max_vnic_attachments), (region, None));
    }
}

#[test]
fn a_virtual_machines_tags_mean_nothing() {
    let vnics = vnics(URL, VM).unwrap().vnics;
    assert_eq!(MachineKind::of(&vnics), MachineKind::Virtual);
    assert_eq!(
        vnics[1],
        Vnic {
            id: "ocid1.vnic.oc1.iad.second".parse().unwrap(),
            mac: "02:00:17:0a:0b:0d".parse().unwrap(),
            nic_index: None,
            vlan_tag: None,
            addressing: PerFamily {
                ipv4: place("10.0.33.7", "10.0.32.0/19", "10.0.32.1"),
                ipv6: place("2603:c020:4000:ab00::7", "2603:c020:4000:ab00::/64", "fe80::200:17ff:fe00:1")
                    .map(|at| { SubnetAddressing { others: vec!["2603:c020:4000:ab00::8".parse().unwrap()], ..at } }),
            },
        }
    );
    assert_eq!(vnics[0].vlan_tag, None);
    assert_eq!(vnics[0].mac, "02:00:17:0a:0b:0c".parse().unwrap(), "case does not matter");
}

#[test]
fn a_family_without_an_address_is_absent() {
    let vnics = vnics(URL, VM).unwrap().vnics;
    assert_eq!(vnics[2].addressing.ipv4, None);
    assert_eq!(vnics[2].addressing.ipv6, place("2603:c020:8:1::9", "2603:c020:8:1::/64", "fe80::200:17ff:fe00:2"));
    assert_eq!(vnics[3].addressing.ipv6, None, "a block of the subnet is not an address of the VNIC");
}

#[test]
fn invalid_items_in_address_list_do_not_affect_valid_addresses() {
    let read = |addresses: &str| {
        let body = format!(
            r#"[{{"vnicId":"ocid1.vnic.oc1.iad.v","macAddr":"02:00:17:00:00:01","ipv6Addresses":{addresses},
                "ipv6SubnetCidrBlock":"2603::/64","ipv6VirtualRouterIp":"fe80::1"}}]"#
        );
        vnics(URL, body.as_bytes()).map(|list| list.vnics[0].addressing.ipv6.as_ref().map(|at| at.listed().collect()))
    };
    let all: Vec<IpAddr> = vec!["2603::8".parse().unwrap(), "2603::7".parse().unwrap()];
    assert_eq!(read(r#"["2603::8","2603:0:0:0:1::/80",null,"2603::7"]"#).unwrap(), Some(all));
    assert_eq!(read("[]").unwrap(), None);
    assert_eq!(read(r#"["2603::/80"]"#).unwrap(), None);
}

#[test]
fn incomplete_family_costs_only_that_family_of_that_vnic() {
    let read = |fields: &str| {
        let entry = |name: &str, fields: &str| {
            format!(r#"{{"vnicId":"ocid1.vnic.oc1.iad.{name}","macAddr":"02:00:17:00:00:01",{fields}"vlanTag":1}}"#)
        };
        let body = format!("[{},{},{}]", entry("p", fields), entry("v", fields), entry("w", ""));
        let list = vnics(URL, body.as_bytes()).unwrap();
        assert_eq!((list.vnics.len(), &list.unusable), (3, &vec![]), "{fields}");
        assert_eq!(list.vnics[2].addressing, PerFamily::default(), "an id and a MAC are enough");
        let families = list.vnics[1].addressing.iter().map(|(family, _)| family).collect::<Vec<_>>();
        assert!(list.incomplete.iter().all(|part| part.id == list.vnics[1].id), "nothing is required of the primary");
        (families, list.incomplete.into_iter().map(|part| part.reason).collect::<Vec<_>>().join("; "))
    };
    let ipv4 = r#""privateIp":"10.0.0.2","subnetCidrBlock":"10.0.0.0/24","virtualRouterIp":"10.0.0.1","#;
    let all = vec![Family::Ipv4, Family::Ipv6];
    for (ipv6, families, reason) in [
        (r#""ipv6Addresses":["2603::8"],"#, vec![Family::Ipv4], "IPv6: [1].ipv6SubnetCidrBlock is missing"),
        (
            r#""ipv6Addresses":["2603::8"],"ipv6SubnetCidrBlock":"<null>","ipv6VirtualRouterIp":"fe80::1","#,
            vec![Family::Ipv4],
            "IPv6: [1].ipv6SubnetCidrBlock is missing",
        ),
        (
            r#""ipv6Addresses":["2603::8"],"ipv6SubnetCidrBlock":"2603::/64","ipv6VirtualRouterIp":"x","#,
            vec![Family::Ipv4],
            r#"IPv6: [1].ipv6VirtualRouterIp is "x", not an IPv6 address"#,
        ),
        (r#""ipv6Addresses":7,"#, vec![Family::Ipv4], "IPv6: [1].ipv6Addresses is 7, not a list"),
        (r#""ipv6Addresses":"<null>","nicIndex":"<null>","#, vec![Family::Ipv4], ""),
        (
            r#""ipv6Addresses":["<null>","2603::8"],"ipv6SubnetCidrBlock":"2603::/64","ipv6VirtualRouterIp":"fe80::1","#,
            all,
            "",
        ),
    ] {
        assert_eq!(read(&format!("{ipv4}{ipv6}")), (families, reason.to_owned()), "{ipv6}");
    }
    assert_eq!(read(r#""privateIp":"10.0.0.2","#), (vec![], "IPv4: [1].subnetCidrBlock is missing".to_owned()));
    assert_eq!(read(r#""privateIp":"<null>","#), (vec![], String::new()));
}

#[test]
fn bare_metal_is_recognized_by_ports_and_keeps_nonzero_tags() {
    let vnics = vnics(URL, BM).unwrap().vnics;
    assert_eq!(MachineKind::of(&vnics), MachineKind::BareMetal);
    let places: Vec<_> = vnics.iter().map(|vnic| (vnic.nic_index, vnic.vlan_tag.map(VlanTag::get))).collect();
    assert_eq!(places, [(Some(0), None), (Some(0), Some(12)), (Some(1), None)]);
}

#[test]
fn refusal_names_url_and_field_and_quotes_start_of_reply() {
    for (body, complaint) in [
        ("[]", "the document is [], not a list that begins with the primary VNIC"),
        ("{}", "the document is {}, not a list"),
    ] {
        let message = refusal(vnics(URL, body.as_bytes()));
        assert!(message.ends_with(&format!(": {complaint}")), "{message}");
        assert!(message.contains(URL) && message.contains(&format!("{:?}", beginning(body.as_bytes()))), "{message}");
    }
    for (body, complaint) in [
        (r#"[{"vnicId":"ocid1.vnic.oc1.iad.v"}]"#, "[0].macAddr is missing"),
        (r#"[{"vnicId":"x","macAddr":"02:00:17:00:00:01"}]"#, r#"[0].vnicId is "x", not an OCID"#),
        (
            r#"[{"vnicId":"ocid1.vnic.oc1.iad.v","macAddr":"02:00:17:00:00:01","nicIndex":0,"vlanTag":4095}]"#,
            "[0].vlanTag is 4095, not a VLAN tag (0-4094)",
        ),
        (
            r#"[{"vnicId":"ocid1.vnic.oc1.iad.v","macAddr":"02:00:17:00:00:01","nicIndex":-1}]"#,
            "[0].nicIndex is -1, not a whole number in range",
        ),
    ] {
        let list = vnics(URL, body.as_bytes()).unwrap();
        assert_eq!((list.vnics.len(), list.unusable[0].place, list.unusable[0].reason.as_str()), (0, 0, complaint));
    }
}

#[test]
fn unusable_entry_is_reported_and_remaining_entries_are_read() {
    let mut list: Value = serde_json::from_slice(VM).unwrap();
    let whole = vnics(URL, VM).unwrap();
    list[1].as_object_mut().unwrap().remove("macAddr");
    list[2].as_object_mut().unwrap().remove("vnicId");
    let read = vnics(URL, list.to_string().as_bytes()).unwrap();
    assert_eq!(read.vnics, [whole.vnics[0].clone(), whole.vnics[3].clone()]);
    let second = Some("ocid1.vnic.oc1.iad.second".parse().unwrap());
    let unusable = |place, id, reason: &str| UnusableVnic { place, id, reason: reason.into() };
    assert_eq!(
        read.unusable,
        [unusable(1, second, "[1].macAddr is missing"), unusable(2, None, "[2].vnicId is missing")]
    );
    list[0].as_object_mut().unwrap().remove("macAddr");
    let read = vnics(URL, list.to_string().as_bytes()).unwrap();
    assert_eq!((read.vnics.len(), read.unusable.len(), read.unusable[0].place), (1, 3, 0));
}

#[test]
fn reply_that_is_not_json_is_quoted_shortened() {
    let message = refusal(instance(URL, format!("<html>{}", "x".repeat(9000)).as_bytes()));
    assert!(message.contains("it begins \"<html>xxx") && message.len() < 300, "{message}");
}
