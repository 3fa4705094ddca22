//! Independent decoders must understand our replies: `cni-plugin` 0.2.1 (types only; why we do not build on it is in
//! docs/decisions/0001) and `rscni-types` 0.2. Neither shares code with us.
//!
//! Known exceptions, all on their side:
//! - `cni-plugin` decodes `dns.nameservers` as addresses: a scoped one (`fe80::1%eth0`) fails the whole result.
//! - `cni-plugin` borrows an error's `msg` from the input: one with an escaped character (a quotation mark) fails.
//! - `cni-plugin` knows nothing of 1.1.0's fields and skips them; its name for 0.3.1 results is the same type.
//! - `rscni-types` decodes the layout of 1.x only: the `version` of addresses in 0.x is skipped.

use cni::{Success, Version};
use cni_plugin::reply::{ErrorReply, SuccessReply};
use rscni_types::types::CNIResultWithVersion;
use serde_json::{Value, json};

use crate::call::{Call, config, config_with};
use crate::results::{full, written};

/// The full result without what the first exception is about.
fn understood() -> Success {
    let mut success = full();
    success.dns.nameservers.retain(|server| !server.contains('%'));
    success
}

/// A result through a whole ADD.
fn reply(version: Version, success: &Success) -> String {
    let mut config = config(version.as_str());
    config["prevResult"] = written(success, version);
    Call::of("ADD").config(&config).run().stdout
}

#[test]
fn cni_plugin_understands_our_results_in_every_version() {
    for version in Version::ALL {
        let reply: SuccessReply = serde_json::from_str(&reply(version, &understood())).unwrap();
        assert_eq!(reply.cni_version.to_string(), version.as_str());
        let interfaces: Vec<_> =
            reply.interfaces.iter().map(|i| (i.name.as_str(), i.sandbox.to_str().unwrap())).collect();
        assert_eq!(interfaces, [("vcn0123456789ab", ""), ("eth0", "/run/netns/pod"), ("net1", "/run/netns/pod")]);
        let ips: Vec<_> = reply.ips.iter().map(|ip| (ip.address.to_string(), ip.gateway, ip.interface)).collect();
        let ours = understood().ips;
        let ours: Vec<_> = ours.iter().map(|ip| (ip.address.to_string(), ip.gateway, ip.interface)).collect();
        assert_eq!(ips, ours);
        let routes: Vec<_> = reply.routes.iter().map(|route| (route.dst.to_string(), route.gw)).collect();
        assert_eq!(
            routes,
            [("0.0.0.0/0".to_owned(), Some("169.254.1.1".parse().unwrap())), ("fd00:1::/64".to_owned(), None),]
        );
        assert_eq!(serde_json::to_value(&reply.dns).unwrap(), written(&understood(), version)["dns"]);
        assert!(reply.specific.is_empty(), "{:?}", reply.specific);
    }
}

#[test]
fn cni_plugin_understands_our_error_replies() {
    for version in Version::ALL {
        let mut config = config(version.as_str());
        config["fail"] = json!(11);
        let outcome = Call::of("ADD").config(&config).run();
        let reply: ErrorReply<'_> = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!((reply.cni_version.to_string().as_str(), reply.code), (version.as_str(), 11));
        assert_eq!((reply.msg, reply.details.as_str()), ("failed as requested: not found", "none"));
    }
    let outcome = Call::of("GC").config(&config_with("name", Value::Null)).run();
    assert_eq!(serde_json::from_str::<ErrorReply<'_>>(&outcome.stdout).unwrap().code, 7);
}

#[test]
fn the_exceptions_of_cni_plugin_are_still_what_they_were() {
    assert!(serde_json::from_str::<SuccessReply>(&reply(Version::V1_0_0, &full())).is_err());
    let quoted = Call::of("ADD").config(&config_with("name", json!("a b"))).run().stdout;
    assert!(serde_json::from_str::<ErrorReply<'_>>(&quoted).is_err(), "{quoted}");
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
        for (reference, ours) in
            decoded["interfaces"].as_array().unwrap().iter().zip(ours["interfaces"].as_array().unwrap())
        {
            for (key, value) in ours.as_object().unwrap() {
                assert_eq!(&reference[key], value, "{version} {key}");
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
