//! A pod that requests what it cannot have does not start, and the error says why; nothing is made.

use host_harness::{Families, error_of, json_of, sh};
use serde_json::json;

use crate::world::{Machine, World, exclusive, shared};

#[test]
fn unavailable_request_is_refused_immediately_with_its_reason() {
    let world = World::new(
        Machine::Virtual,
        &[shared(Families::V4, 0), exclusive(Families::V4, 1), exclusive(Families::V4, 2)],
    );
    let mut pools = world.pools();
    pools[2].attach.as_mut().unwrap().is_leaving = true;
    world.write_pools(pools);
    let (pod, before) = (world.pod("a", 5), world.snapshot());
    for (annotation, reason) in [
        ("storage", "this node has no VNIC named storage;"),
        ("v2", "VNIC v2 is being removed"),
        ("v0@eth0", "interface eth0 is the pod's own"),
        ("v0,v0@x", "VNIC v0 is requested twice"),
        (r#"[{"vnic":"v0","ips":["10.0.0.99"]}]"#, "10.0.0.99 is not an address that VNIC v0 has"),
        (r#"[{"vnic":"v1","ips":["10.0.1.17"]}]"#, "10.0.1.17 is not an address that VNIC v1 has"),
        (r#"[{"vnic":"v0","path":"/etc"}]"#, "annotation oke.oraclecloud.com/interfaces: [0]: unknown field `path`"),
        // What is refused for the last entry leaves nothing of the first.
        ("v0,storage", "no VNIC named storage"),
    ] {
        world.assert_refused(&pod, annotation, reason);
    }
    let with_args = |args: &str| {
        let mut call = world.chained("ADD", &pod, Some("v0"));
        call.environment.retain(|(name, _)| *name != "CNI_ARGS");
        call.environment.push(("CNI_ARGS", args.to_owned()));
        error_of(&world.run(&call))
    };
    let (code, message) = with_args("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=x");
    assert!(code == 11 && message.contains(r#""namespace default is not allowed to use VNIC v0;"#), "{message}");
    let (code, message) = with_args("IgnoreUnknown=1");
    assert!(code == 11 && message.contains("does not tell the pod's namespace"), "{message}");
    assert_eq!(world.snapshot(), before);
    assert!(world.allocations().is_empty(), "no address was touched");
}

#[test]
fn requested_name_in_use_is_refused_and_default_avoids_it() {
    let world = World::new(Machine::Virtual, &[shared(Families::V4, 0), exclusive(Families::V4, 1)]);
    let pod = world.pod("a", 5);
    sh(&pod.netns, "ip link add net1 type veth peer name net2");
    world.assert_refused(&pod, "v0@net2", "the pod has an interface net2 already");
    let result = world.add(&pod, "v0@net4,v1");
    let names: Vec<_> = result["interfaces"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names[1..], ["eth0", names[2].as_str().unwrap(), "net4", "net3"], "{result}");
}

#[test]
fn a_definition_grants_nothing_and_names_no_path() {
    let world = World::new(Machine::Virtual, &[exclusive(Families::V4, 0)]);
    let (pod, elsewhere) = (world.pod("a", 5), tempfile::tempdir().unwrap());
    let mut hostile = world.delegated("ADD", &pod, "v0", "net1");
    hostile.environment.retain(|(name, _)| *name != "CNI_ARGS");
    hostile.environment.push(("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-b;K8S_POD_NAME=x".into()));
    let (code, message) = error_of(&world.run(&hostile));
    assert!(code == 11 && message.contains("namespace team-b is not allowed"), "{message}");
    let path = elsewhere.path().to_str().unwrap();
    for (key, value) in [
        ("stateDir", serde_json::json!(path)),
        ("allowedNamespaces", serde_json::json!(["default"])),
        ("Vnic", "v1".into()),
        ("defaultroute", true.into()),
        ("table", 254.into()),
        ("", serde_json::Value::Null),
        ("a\u{1b}[2J", true.into()),
    ] {
        for verb in ["ADD", "CHECK"] {
            let mut call = world.delegated(verb, &pod, "v0", "net1");
            call.conf[key] = value.clone();
            call.conf["prevResult"] = serde_json::json!({ "cniVersion": "1.0.0" });
            let (code, message) = error_of(&world.run(&call));
            let named = format!("unknown key \"{}\"", vcn::printable(key)).replace('\\', "\\\\").replace('"', "\\\"");
            assert!(code == 7 && message.contains(&named), "{verb}: {message}");
        }
    }
    for (vnic, code) in [(serde_json::json!(7), 6), ("../v0".into(), 11), ("".into(), 11), ("v".repeat(99).into(), 11)]
    {
        let mut call = world.delegated("ADD", &pod, "v0", "net1");
        call.conf["vnic"] = vnic;
        assert_eq!(error_of(&world.run(&call)).0, code);
    }
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    let mut usual = world.delegated("ADD", &pod, "v0", "net1");
    for (key, value) in [
        ("capabilities", serde_json::json!({ "ips": true })),
        ("runtimeConfig", serde_json::json!({})),
        ("args", serde_json::json!({ "cni": {} })),
        ("ipam", serde_json::json!({})),
        ("dns", serde_json::json!({})),
        ("disableCheck", true.into()),
        ("deviceID", "0000:00:05.0".into()),
        ("pciBusID", "0000:00:05.0".into()),
    ] {
        usual.conf[key] = value;
    }
    json_of(&world.run(&usual));
}

#[test]
fn delegate_refuses_what_it_cannot_give_and_shows_the_value() {
    let world = World::new(Machine::Virtual, &[shared(Families::V4, 0)]);
    let (pod, mac) = (world.pod("a", 5), "02:00:00:00:00:09");
    let before = world.snapshot();
    for (conf, args, expected, complaint) in [
        (
            json!({"runtimeConfig": {"mac": mac}}),
            "",
            2,
            "runtimeConfig.mac is \"02:00:00:00:00:09\", which vnic-attach cannot",
        ),
        (json!({"args": {"cni": {"mac": mac}}}), "", 2, "args.cni.mac is \"02:00:00:00:00:09\""),
        (json!({}), ";MAC=02:00:00:00:00:09", 2, "MAC of CNI_ARGS is \"02:00:00:00:00:09\""),
        (json!({"ipam": {"type": "static", "addresses": []}}), "", 2, "ipam.type is \"static\""),
        (json!({"ipam": {"addresses": [{"address": "10.0.0.13/24"}]}}), "", 2, "ipam is {\"addresses\":"),
        (json!({"ips": ["10.0.0.300"]}), "", 6, "invalid IP address \"10.0.0.300\""),
        (json!({"runtimeConfig": {"ips": ["x"]}}), "", 11, "runtimeConfig.ips: invalid IP address \"x\""),
        (json!({"runtimeConfig": {"ips": {"a": "10.0.0.13"}}}), "", 11, "it must be a list of addresses"),
        (json!({}), ";IP=10.0.0.99", 11, "10.0.0.99 is not an address that VNIC v0 has"),
        (json!({"ips": "10.0.0.13"}), ";IP=10.0.0.14", 11, "more than one IPv4 address: 10.0.0.13 and 10.0.0.14"),
    ] {
        let mut call = world.delegated("ADD", &pod, "v0", "net1");
        call.conf.as_object_mut().unwrap().extend(conf.as_object().unwrap().clone());
        call.environment.iter_mut().filter(|(name, _)| *name == "CNI_ARGS").for_each(|(_, value)| *value += args);
        let (code, message) = error_of(&world.run(&call));
        assert!(code == expected && message.replace("\\\"", "\"").contains(complaint), "{conf} {args}: {message}");
    }
    assert_eq!(world.snapshot(), before);
    assert!(world.allocations().allocations.is_empty());
}

/// The primary VNIC's link is in no agent's file as one to give away; were it, it would stay.
#[test]
fn add_refuses_foreign_link_or_link_used_by_host() {
    for (change, reason) in [
        ("ip link set ens5 address 02:00:00:00:00:99", "link ens5 is not the VNIC's"),
        (
            "ip link set ens5 name other; ip link add ens5 address 02:00:17:00:00:00 type bridge",
            "which is a veth link with the Ethernet address 02:00:17:00:00:00",
        ),
        ("ip link set ens5 name other", "the host has no link ens5"),
        (
            "ip addr add 10.0.0.200/24 dev ens5; ip route add default via 10.0.0.1",
            "the host's default route is by ens5",
        ),
    ] {
        let world = World::new(Machine::Virtual, &[exclusive(Families::V4, 0)]);
        sh(&world.host, change);
        let (pod, before) = (world.pod("a", 5), world.snapshot());
        world.assert_refused(&pod, "v0", reason);
        assert_eq!(world.snapshot(), before);
        assert!(world.allocations().allocations.is_empty());
    }
}

/// An Exclusive VNIC, and a Shared one with one address.
fn with_room_for_one() -> World {
    let world = World::new(Machine::Virtual, &[exclusive(Families::V4, 0), shared(Families::V4, 1)]);
    let mut pools = world.pools();
    pools[1].families.ipv4.as_mut().unwrap().addresses = vec!["10.0.1.16/32".parse().unwrap()];
    world.write_pools(pools);
    world
}

#[test]
fn exclusive_vnic_serves_one_pod_and_shared_vnic_several() {
    let world = with_room_for_one();
    let (first, second) = (world.pod("a", 5), world.pod("b", 6));
    world.add(&first, "v0,v1");
    world.assert_refused(
        &second,
        "v0",
        r#""VNIC v0 is Exclusive, and pod team-a/web-0 has it; delete that pod, or run this one on another node""#,
    );
    world.assert_refused(&second, "v1", "VNIC v1 has no free address");
    world.del(&first);
    world.add(&second, "v0,v1");
}

#[test]
fn concurrent_adds_assign_the_last_address_or_link_once() {
    let world = with_room_for_one();
    for vnic in ["v0", "v1"] {
        for round in 0..5 {
            let pods = [world.pod(&format!("a{vnic}{round}"), 5), world.pod(&format!("b{vnic}{round}"), 6)];
            let runs = pods.each_ref().map(|pod| {
                world.spawn(std::process::Command::new(crate::world::PLUGIN), &world.chained("ADD", pod, Some(vnic)))
            });
            let won: Vec<bool> = runs
                .into_iter()
                .map(|run| {
                    let output = run.wait_with_output().unwrap();
                    assert!(output.status.success() || error_of(&output).0 == 11);
                    output.status.success()
                })
                .collect();
            assert_ne!(won[0], won[1], "one has it");
            pods.iter().for_each(|pod| world.del(pod));
            sh(&world.host, "ip link del prim5; ip link del prim6");
            assert!(world.allocations().allocations.is_empty());
        }
    }
}
