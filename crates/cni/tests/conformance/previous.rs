//! prevResult: read as far as it can be understood, passed on as it came.

use cni::{Dns, Ip, PrevResult, Route, Success, Version};
use serde_json::{Value, json};

use crate::call::{Call, config, config_with};
use crate::noop::PluginCall;
use crate::results::{full, written};

/// The previous result as a plugin gets it.
fn previous(version: &str, prev_result: &Value) -> PrevResult {
    let mut config = config(version);
    config["prevResult"] = prev_result.clone();
    let outcome = Call::of("ADD").config(&config).run();
    let [PluginCall::Add(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    request.config.prev_result.clone().unwrap()
}

#[test]
fn result_reads_back_unchanged_in_every_version() {
    for version in Version::ALL {
        let read = previous(version.as_str(), &written(&full(), version)).read();
        let mut known = Success { dns: Dns::default(), ..full() };
        known.interfaces.iter_mut().filter(|_| version < Version::V1_1_0).for_each(|interface| interface.mtu = None);
        assert_eq!(read, known, "{version}");
    }
}

#[test]
fn an_unchanged_previous_result_is_passed_on_as_it_came() {
    for version in Version::ALL {
        let mut given = written(&full(), version);
        given["vendor"] = json!({"big": u64::MAX, "list": [1.5, null]});
        given["interfaces"][0]["vendor"] = json!("kept");
        given["interfaces"][0]["mac"] = json!("");
        given["ips"][0]["interface"] = json!(-1);
        let mut config = config(version.as_str());
        config["prevResult"] = given.clone();
        let outcome = Call::of("ADD").config(&config).run();
        assert_eq!(outcome.stdout.trim_end(), given.to_string(), "{version}");
    }
}

#[test]
fn invalid_result_items_are_skipped_and_positions_are_kept() {
    let read = previous(
        "1.1.0",
        &json!({
            "interfaces": [
                {"name": "a", "mac": "", "mtu": -1, "sandbox": ""},
                "nonsense",
                {"name": "b", "mac": "not a mac", "mtu": "x", "pciID": 5},
                {"name": "ib0", "mac": "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01"},
            ],
            "ips": [
                {"address": "10.0.0.1/32", "interface": -1, "gateway": ""},
                {"address": "10.0.0.2/32", "interface": 4},
                {"address": "10.0.0.3/32", "interface": 3},
                {"address": "10.0.0.4/32"},
                {"address": "10.0.0.5/32", "interface": "0"},
                {"address": "10.0.0.6"},
                {"address": "nonsense"},
                7,
            ],
            "routes": [{"dst": "nonsense"}, {"dst": "0.0.0.0/0", "gw": "nonsense", "scope": 999}, null],
        }),
    )
    .read();
    let names: Vec<_> = read.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["a", "", "b", "ib0"]);
    assert!(read.interfaces.iter().all(|i| i.mac.is_none() && i.mtu.is_none() && i.sandbox.is_empty()));
    let ips: Vec<_> = read.ips.iter().map(|ip| (ip.address.to_string(), ip.interface)).collect();
    let address = |last: u8, interface| (format!("10.0.0.{last}/32"), interface);
    assert_eq!(ips, [address(1, None), address(2, None), address(3, Some(3)), address(4, None), address(5, None)]);
    assert_eq!(read.routes, [Route { dst: "0.0.0.0/0".parse().unwrap(), gw: None }]);
    for nothing in
        [json!({}), json!({"interfaces": null, "ips": null, "routes": null, "dns": null}), json!({"ips": {}})]
    {
        assert_eq!(previous("1.0.0", &nothing).read(), Success::default(), "{nothing}");
    }
}

#[test]
fn additions_go_behind_what_is_there_in_the_configurations_version() {
    let given = json!({
        "interfaces": [{"name": "eth0", "vendor": 1}],
        "ips": [{"version": "4", "address": "10.0.0.5/32", "interface": 0, "vendor": 2}],
        "vendor": 3,
    });
    let mut previous = previous("0.4.0", &given);
    let added = &full().interfaces[1];
    assert_eq!(previous.add_interface(added), 1);
    previous.add_ip(Ip { address: "fd00::7/128".parse().unwrap(), gateway: None, interface: Some(1) });
    assert_eq!(
        previous.to_json(Version::V0_4_0),
        json!({
            "interfaces": [
                {"name": "eth0", "vendor": 1},
                {"name": "eth0", "mac": "02:00:17:00:00:02", "sandbox": "/run/netns/pod"},
            ],
            "ips": [
                {"version": "4", "address": "10.0.0.5/32", "interface": 0, "vendor": 2},
                {"address": "fd00::7/128", "interface": 1, "version": "6"},
            ],
            "vendor": 3,
            "cniVersion": "0.4.0",
        })
    );
}

#[test]
fn older_version_gets_address_family_omitted_by_newer_plugin() {
    let given = json!({"cniVersion": "0.4.0", "ips": [{"address": "fd00::5/128"}, {"address": "10.0.0.5/32"}]});
    let mut config = config("0.4.0");
    config["prevResult"] = given;
    let result = Call::of("ADD").config(&config).run().result();
    assert_eq!((&result["ips"][0]["version"], &result["ips"][1]["version"]), (&json!("6"), &json!("4")));
}

#[test]
fn check_gets_the_result_of_the_whole_chain() {
    let outcome = Call::of("CHECK").config(&config_with("prevResult", written(&full(), Version::V1_1_0))).run();
    outcome.silent();
    let [PluginCall::Check(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(request.prev_result.read(), Success { dns: Dns::default(), ..full() });
}
