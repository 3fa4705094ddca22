//! An independent decoder must understand our replies: `rscni-types` 0.2, which shares no code with us. It decodes the layout of
//! 1.x only: the `version` of addresses in 0.x is skipped.

use cni::{Success, Version};
use rscni_types::types::CNIResultWithVersion;
use serde_json::{Value, json};

use crate::call::{Call, config, config_with};
use crate::results::{full, written};

/// A result through a whole ADD.
fn reply(version: Version, success: &Success) -> String {
    let mut config = config(version.as_str());
    config["prevResult"] = written(success, version);
    Call::of("ADD").config(&config).run().stdout
}

#[test]
fn rscni_types_understands_every_field_of_our_results() {
    for version in Version::ALL {
        let text = reply(version, &full());
        let decoded: CNIResultWithVersion = serde_json::from_str(&text).unwrap();
        let mut ours: Value = serde_json::from_str(&text).unwrap();
        for ip in ours["ips"].as_array_mut().unwrap() {
            ip.as_object_mut().unwrap().remove("version");
        }
        let decoded = serde_json::to_value(decoded.into_result()).unwrap();
        for key in ["ips", "routes", "dns"] {
            assert_eq!(decoded[key], ours[key], "{version} {key}");
        }
        for (theirs, ours) in
            decoded["interfaces"].as_array().unwrap().iter().zip(ours["interfaces"].as_array().unwrap())
        {
            for (key, value) in ours.as_object().unwrap() {
                assert_eq!(&theirs[key], value, "{version} {key}");
            }
        }
    }
}

#[test]
fn rscni_types_understands_our_error_replies_quotation_marks_included() {
    let outcome = Call::of("ADD").config(&config_with("name", json!("a b"))).run();
    let reply: rscni_types::types::ErrorResult = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(serde_json::to_value(reply).unwrap(), outcome.error());
}
