//! Verbs other than ADD and DEL, calls that are repeated, and pods that request nothing.

use host_harness::{Families, error_of, json_of, reaches_from, sh};
use serde_json::{Value, json};

use crate::world::{Machine, World, addresses, exclusive, previous, shared};

#[test]
fn a_pod_without_the_annotation_passes_through_unchanged() {
    // Not even a state directory is needed.
    let world = World::new(Machine::Virtual, &[]);
    std::fs::remove_dir_all(world.state.path()).unwrap();
    let pod = world.pod("a", 5);
    for annotation in [None, Some(""), Some("[]")] {
        let call = world.chained("ADD", &pod, annotation);
        let answer = world.run(&call);
        assert_eq!(String::from_utf8(answer.stdout).unwrap().trim(), previous(&pod).to_string());
        for verb in ["CHECK", "DEL", "STATUS"] {
            assert_eq!(json_of(&world.run(&world.chained(verb, &pod, annotation))), Value::Null, "{verb}");
        }
    }
    let mut alone = world.chained("ADD", &pod, None);
    alone.conf.as_object_mut().unwrap().remove("prevResult");
    let (code, message) = error_of(&world.run(&alone));
    assert!(code == 7 && message.contains("no prevResult"), "{message}");
    assert!(!world.state.path().exists());
}

#[test]
fn add_appends_to_prev_result_and_keeps_the_rest() {
    let world = World::new(Machine::Virtual, &[shared(Families::Dual, 0), exclusive(Families::V4, 1)]);
    let pod = world.pod("a", 5);
    let result = world.add(&pod, "v0,v1");
    let before = previous(&pod);
    assert_eq!(result["x-other"], before["x-other"]);
    for list in ["interfaces", "ips", "routes"] {
        let old = before[list].as_array().unwrap();
        assert_eq!(result[list].as_array().unwrap()[..old.len()], old[..], "{list}");
    }
    assert_eq!(result["ips"][3], json!({"address": "10.0.1.16/24", "gateway": "10.0.1.1", "interface": 4}));
    assert_eq!(result["interfaces"][4]["mac"], "02:00:17:00:00:01");
    assert_eq!(result["interfaces"][4]["mtu"], 9000);
}

#[test]
fn a_delegate_of_multus_has_its_interface_without_annotation() {
    for vnic in [shared(Families::Dual, 0), exclusive(Families::Dual, 0)] {
        let world = World::new(Machine::Virtual, &[vnic]);
        let (pod, before) = (world.pod("a", 5), world.snapshot());
        let result = json_of(&world.run(&world.delegated("ADD", &pod, "v0", "net1")));
        let own = addresses(&result, "net1");
        assert!(own.len() == 2 && reaches_from(&pod.netns, &own[0].to_string(), "10.0.0.1"), "{result}");
        let mut check = world.delegated("CHECK", &pod, "v0", "net1");
        check.conf["prevResult"] = result;
        json_of(&world.run(&check));
        // The chain's DEL, which comes first or last, leaves it to Multus.
        world.del(&pod);
        assert_eq!(world.allocations().allocations.len(), 1);
        json_of(&world.run(&world.delegated("DEL", &pod, "v0", "net1")));
        assert_eq!(world.snapshot(), before);
    }
}

#[test]
fn requested_addresses_are_given() {
    let world = World::new(Machine::Virtual, &[shared(Families::Dual, 0)]);
    let pod = world.pod("a", 5);
    let result = world.add(&pod, r#"[{"vnic": "v0", "ips": ["10.0.0.13", "2001:db8:0::b"]}]"#);
    assert_eq!(
        addresses(&result, "net1"),
        ["10.0.0.13", "2001:db8::b"].map(|ip| ip.parse::<std::net::IpAddr>().unwrap())
    );
    world.assert_refused(&world.pod("b", 6), r#"[{"vnic": "v0", "ips": ["10.0.0.13"]}]"#, "no free address");
}

#[test]
fn delegate_gets_addresses_that_its_caller_requests_in_any_place() {
    let world = World::new(Machine::Virtual, &[shared(Families::Dual, 0)]);
    let expected = ["10.0.0.13", "2001:db8::b"].map(|ip| ip.parse::<std::net::IpAddr>().unwrap());
    for (number, (conf, args)) in [
        (json!({"ips": ["10.0.0.13/24", "2001:db8::b"]}), ""),
        (json!({"ips": "10.0.0.13,2001:db8::b/64"}), ""),
        (json!({"runtimeConfig": {"ips": ["10.0.0.13/24", "2001:db8::b/64"]}}), ""),
        (json!({"args": {"cni": {"ips": ["10.0.0.13", "2001:db8::b"]}}}), ""),
        (json!({"ips": null, "runtimeConfig": {"ips": ["2001:db8::b"], "mac": ""}, "ipam": {}}), ";IP=10.0.0.13/24;MAC="),
        (json!({"ips": ["10.0.0.13"], "runtimeConfig": {"ips": ["10.0.0.13/24"]}, "args": {"cni": {"ips": "2001:db8::b"}}}), ""),
    ]
    .into_iter()
    .enumerate()
    {
        let pod = world.pod(&format!("a{number}"), 5);
        let call = |verb: &str| {
            let mut call = world.delegated(verb, &pod, "v0", "net1");
            call.conf.as_object_mut().unwrap().extend(conf.as_object().unwrap().clone());
            call.environment.iter_mut().filter(|(name, _)| *name == "CNI_ARGS").for_each(|(_, value)| *value += args);
            call
        };
        let result = json_of(&world.run(&call("ADD")));
        assert_eq!(addresses(&result, "net1"), expected, "{conf}");
        let mut check = call("CHECK");
        check.conf["prevResult"] = result;
        json_of(&world.run(&check));
        json_of(&world.run(&call("DEL")));
        sh(&world.host, "ip link del prim5");
    }
}

#[test]
fn chained_plugin_leaves_requests_to_the_first_plugin() {
    let world = World::new(Machine::Virtual, &[shared(Families::V4, 0)]);
    let pod = world.pod("a", 5);
    for annotation in [None, Some("v0")] {
        let mut call = world.chained("ADD", &pod, annotation);
        call.conf["args"] = json!({"cni": {"ips": ["192.0.2.9"], "mac": "02:00:00:00:00:09"}});
        call.conf["ipam"] = json!({"type": "static"});
        call.environment.retain(|(name, _)| *name != "CNI_ARGS");
        let args = "K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=web-0;IP=192.0.2.9;MAC=02:00:00:00:00:09";
        call.environment.push(("CNI_ARGS", args.to_owned()));
        json_of(&world.run(&call));
    }
}

#[test]
fn repeated_add_returns_same_result_and_repairs_missing_parts() {
    let world = World::new(Machine::Virtual, &[shared(Families::Dual, 0), exclusive(Families::Dual, 1)]);
    let pod = world.pod("a", 5);
    let first = world.add(&pod, "v0,v1");
    assert_eq!(world.add(&pod, "v0,v1"), first);
    sh(&pod.netns, "ip rule del pref 1536; ip addr flush dev net2; ip link set net1 down; ip link set net2 mtu 1500");
    assert_eq!(world.add(&pod, "v0,v1"), first);
    for (interface, router) in [("net1", "10.0.0.1"), ("net2", "10.0.1.1")] {
        assert!(reaches_from(&pod.netns, &addresses(&first, interface)[0].to_string(), router), "{interface}");
    }
    world.assert_refused(&pod, r#"[{"vnic":"v0","ips":["10.0.0.14"]}]"#, "delete the pod");
}

#[test]
fn repeated_add_builds_a_shared_interface_again_in_a_new_namespace() {
    let world = World::new(Machine::Virtual, &[shared(Families::Dual, 0)]);
    let old = world.pod("a", 5);
    let first = addresses(&world.add(&old, "v0"), "net1");
    let new = world.pod("a", 6);
    assert_eq!(addresses(&world.add(&new, "v0"), "net1"), first);
    assert!(reaches_from(&new.netns, &first[0].to_string(), "10.0.0.1"));
}

#[test]
fn check_names_what_is_missing() {
    for vnic in [shared(Families::Dual, 0), exclusive(Families::Dual, 0)] {
        let world = World::new(Machine::Virtual, &[vnic]);
        let pod = world.pod("a", 5);
        let result = world.add(&pod, "v0@net1");
        let check = |annotation: &str| {
            let mut call = world.chained("CHECK", &pod, Some(annotation));
            call.conf["prevResult"] = result.clone();
            let output = world.run(&call);
            serde_json::from_slice::<Value>(&output.stdout).map(|it| it.to_string()).unwrap_or_default()
        };
        assert_eq!(check("v0@net1"), "");
        assert!(check("v0@net2").contains("no interface on VNIC v0"));
        for (spoil, repair, complaint) in [
            ("ip rule del pref 1536", None, "rule add pref 1536"),
            ("ip -6 route del default table 1000", None, "route add default"),
            ("ip link set net1 mtu 1400", Some("ip link set net1 mtu 9000"), "mtu 9000"),
            ("ip addr flush dev net1 scope global", None, "addr add"),
            ("ip link set net1 down", None, "link set net1"),
        ] {
            sh(&pod.netns, spoil);
            let text = check("v0@net1");
            assert!(text.contains("107") && text.contains(complaint), "{spoil}: {text}");
            repair.map(|repair| sh(&pod.netns, repair));
        }
    }
}

/// GC of the chain names pods by their own interfaces. GC for the pods' own network, which has another plugin, and GC for another
/// Multus network name none of these interfaces.
#[test]
fn gc_ends_what_its_own_network_calls_dead() {
    let world =
        World::new(Machine::Virtual, &[shared(Families::V4, 0), exclusive(Families::V4, 1), shared(Families::V4, 2)]);
    let (dead, lives, before) = (world.pod("dead", 5), world.pod("lives", 6), world.snapshot());
    world.add(&lives, "v0");
    let kept = world.snapshot();
    world.add(&dead, "v0,v1");
    json_of(&world.run(&world.delegated("ADD", &dead, "v2", "net9")));
    // Those made in the last 30 s are spared: they may belong to an ADD that the runtime has not noted yet.
    let aged = |name: &str| {
        let path = world.state.path().join("allocations").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut record: Value = serde_json::from_str(&text).unwrap();
        record["allocation"]["since"] = json!(1);
        std::fs::write(&path, record.to_string()).unwrap();
    };
    for entry in std::fs::read_dir(world.state.path().join("allocations")).unwrap() {
        aged(entry.unwrap().file_name().to_str().unwrap());
    }
    let gc = |network: &str, vnic: Option<&str>, valid: Value| {
        let mut call = world.chained("GC", &dead, None);
        call.conf["name"] = network.into();
        call.conf["vnic"] = vnic.map_or(Value::Null, Into::into);
        call.conf["cni.dev/valid-attachments"] = valid;
        json_of(&world.run(&call));
        world.allocations().allocations.len()
    };
    let valid =
        |ids: &[&str]| json!(ids.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect::<Vec<_>>());
    assert_eq!(gc("another", None, json!([])), 4);
    assert_eq!(gc("pods", None, valid(&["dead", "lives"])), 4);
    assert_eq!(gc("pods", None, valid(&["lives"])), 2, "net9 is a delegate's");
    assert_eq!(gc("nad", Some("v2"), json!([])), 1);
    assert_eq!(world.snapshot(), kept);
    world.del(&lives);
    assert_eq!(world.snapshot(), before);
}
