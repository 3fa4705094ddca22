//! A runtime or Multus gets a result in the form of the reference plugins for the same pod. These are macvlan for a Shared VNIC
//! and host-device for an Exclusive one, each with static addresses.

use std::collections::BTreeSet;
use std::process::Command;

use host_harness::{Families, json_of};
use serde_json::{Value, json};

use crate::world::{Machine, Pod, Vnic, World, exclusive, shared};

const REFERENCE: &str = "/usr/lib/cni";

/// The results of both for a pod with the same interface and addresses, each on a node of its own.
fn results(vnic: Vnic, reference: &str, more: Value) -> [(Value, String); 2] {
    let [own, other] = [0, 1].map(|_| World::new(Machine::Virtual, &[vnic]));
    let (pod, twin) = (own.pod("a", 5), other.pod("a", 5));
    let result = json_of(&own.run(&own.delegated("ADD", &pod, "v0", "net1")));
    let given = result["ips"].as_array().unwrap();
    let address = |ip: &Value| {
        let address = ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        match address.contains(':') {
            true => json!({ "address": format!("{address}/64"), "gateway": "fe80::1:1" }),
            false => json!({ "address": format!("{address}/24"), "gateway": "10.0.0.1" }),
        }
    };
    let ipam = json!({ "type": "static", "addresses": given.iter().map(address).collect::<Vec<_>>() });
    let mut call = other.delegated("ADD", &twin, "v0", "net1");
    call.conf = json!({ "cniVersion": "1.0.0", "name": "nad", "type": reference, "ipam": ipam });
    call.conf.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    call.environment.push(("CNI_PATH", REFERENCE.to_owned()));
    let program = Command::new(format!("{REFERENCE}/{reference}"));
    let expected = json_of(&other.spawn(program, &call).wait_with_output().unwrap());
    let path = |pod: &Pod| pod.path().display().to_string();
    [(result, path(&pod)), (expected, path(&twin))]
}

/// What is comparable of a result: keys, the interface in the pod, and which address is on which interface. The path of the
/// pod's namespace, which differs, is a word.
fn form(result: &Value, sandbox: &str) -> Value {
    // An empty list means the same as none.
    let is_some = |(_, value): &(&String, &Value)| *value != &json!([]);
    let keys = |value: &Value| {
        let keys = value.as_object().unwrap().iter().filter(is_some).map(|(key, _)| key.clone());
        keys.collect::<BTreeSet<_>>()
    };
    let list = |name: &str| result[name].as_array().cloned().unwrap_or_default();
    let interfaces = list("interfaces");
    let in_pod = |interface: &&Value| interface["sandbox"].as_str().is_some_and(|it| !it.is_empty());
    let inside: Vec<_> = interfaces
        .iter()
        .filter(in_pod)
        .map(|it| json!({ "name": it["name"], "is of the pod": it["sandbox"] == sandbox, "has a mac": it["mac"].is_string() }))
        .collect();
    let address = |ip: &Value| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    let on = |ip: &Value| interfaces[usize::try_from(ip["interface"].as_u64().unwrap()).unwrap()]["name"].clone();
    let ips: Vec<_> = list("ips").iter().map(|ip| json!([keys(ip), address(ip), on(ip)])).collect();
    json!({ "keys": keys(result), "inside": inside, "ips": ips, "routes": list("routes"), "dns": result["dns"] })
}

#[test]
fn shared_vnics_result_has_the_form_of_macvlans() {
    for families in [Families::V4, Families::V6, Families::Dual] {
        let master = json!({ "master": "ens5", "mode": "bridge" });
        let [own, other] = results(shared(families, 0), "macvlan", master);
        assert_eq!(form(&own.0, &own.1), form(&other.0, &other.1), "{} {}", own.0, other.0);
        // The host has an end of it, which is named first; the addresses are routed one by one.
        assert_eq!(own.0["interfaces"].as_array().unwrap().len(), 2, "{}", own.0);
        assert!(own.0["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 1), "{}", own.0);
    }
}

#[test]
fn exclusive_vnics_result_equals_that_of_host_device() {
    for families in [Families::V4, Families::V6, Families::Dual] {
        let [own, other] = results(exclusive(families, 0), "host-device", json!({ "device": "ens5" }));
        assert_eq!(form(&own.0, &own.1), form(&other.0, &other.1), "{} {}", own.0, other.0);
        assert_eq!(own.0["ips"], other.0["ips"], "prefixes and gateways too");
        assert_eq!(own.0["interfaces"][0]["mac"], other.0["interfaces"][0]["mac"], "{} {}", own.0, other.0);
    }
}
