//! `prevResult` of every shape: this plugin starts chains, so whatever is in it must not matter, as long as it is an object.

use serde_json::{Value, json};

use crate::protocol::call::Machine;

#[test]
fn prev_result_with_arbitrary_content_causes_no_failure() {
    let machine = Machine::new();
    let results = [
        json!({}),
        json!({"cniVersion": 7, "interfaces": null, "ips": null, "routes": null, "dns": null}),
        json!({"interfaces": {}, "ips": "x", "routes": 1, "dns": []}),
        json!({"interfaces": [null, 1, {}, {"name": 7, "mac": "x"}], "ips": [null, {"address": "10.0.0.9"}]}),
        json!({"ips": [{"address": "10.0.0.9/99", "interface": -1}, {"version": "5", "interface": 1e300}]}),
        json!({"ip4": {"ip": "10.0.0.9/32"}, "cniVersion": "0.2.0"}),
        json!({"routes": [{"dst": "x"}, {"dst": "::/0", "gw": "", "mtu": -1, "table": "main"}]}),
        json!({"code": 11, "msg": "an error that a runtime kept"}),
        json!({"x": "y".repeat(100_000)}),
    ];
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        for result in &results {
            for (verb, expected) in [("ADD", 11), ("DEL", 0), ("CHECK", if version == "0.3.1" { 1 } else { 108 })] {
                let mut config = machine.config();
                config["cniVersion"] = version.into();
                config["prevResult"] = result.clone();
                let answer = machine.answer(&machine.call(verb).stdin(config.to_string()));
                assert_eq!(answer.code(), expected, "{verb} {version} {result}: {answer:?}");
            }
        }
    }
}

#[test]
fn prev_result_must_be_an_object_except_for_del() {
    let machine = Machine::new();
    for result in [json!("x"), json!(7), json!([]), json!(true)] {
        let codes = ["ADD", "DEL", "CHECK"].map(|verb| {
            let mut config: Value = machine.config();
            config["prevResult"] = result.clone();
            machine.answer(&machine.call(verb).stdin(config.to_string())).code()
        });
        assert_eq!(codes, [6, 0, 6], "{result}");
    }
}
