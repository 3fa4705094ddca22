//! Whatever is on stdin, the answer is one clear error or the right request.

use std::process::ExitCode;

use cni::Version;
use serde_json::{Value, json};

use crate::call::{Call, config, config_with, config_without};
use crate::noop::PluginCall;

const WITH_CONFIG: [&str; 5] = ["ADD", "DEL", "CHECK", "STATUS", "GC"];

#[test]
fn input_that_is_no_json_object_returns_code_6() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_field =
        format!(r#"{{"cniVersion":"1.1.0","name":"n","x":{}1{}}}"#, "{\"a\":".repeat(500), "}".repeat(500));
    let whole = config("1.1.0").to_string();
    let truncated = whole.split_at(whole.len() / 2).0.to_owned();
    let many = format!("[{}0]", "0,".repeat(1 << 18));
    let utf_16: Vec<u8> = whole.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: [(&str, &[u8], &str); 18] = [
        ("a NUL", b"\0", "is not JSON: expected value"),
        ("UTF-16 without its mark", &utf_16, "is not JSON: key must be a string"),
        ("YAML", b"cniVersion: 1.0.0\n", "is not JSON: expected value"),
        ("a text", b"\"{}\"", "it is a string, it must be an object"),
        ("empty", b"", "stdin is empty"),
        ("blank", b" \n\t", "stdin is empty"),
        ("one byte", b"{", "is not JSON: EOF"),
        ("truncated", truncated.as_bytes(), "is not JSON: EOF"),
        ("not UTF-8", b"{\"name\":\"\xff\"}", "is not UTF-8 after byte 9"),
        ("UTF-16", b"\xff\xfe{\0}\0", "is not UTF-8 after byte 0"),
        ("a byte order mark", b"\xef\xbb\xbf{}", "begins with a byte order mark: write it without"),
        ("too many parts", many.as_bytes(), "has more than 262144 fields and items: make it smaller"),
        ("deep", deep.as_bytes(), "recursion limit exceeded"),
        ("deep inside", deep_field.as_bytes(), "recursion limit exceeded"),
        ("two documents", b"{} {}", "trailing characters"),
        ("a list", b"[]", "it is an array, it must be an object"),
        ("null", b"null", "it is null, it must be an object"),
        ("a lone surrogate", br#"{"name":"\ud800"}"#, "is not JSON"),
    ];
    for verb in WITH_CONFIG {
        for (case, stdin, complaint) in &cases {
            let outcome = Call::of(verb).stdin(*stdin).run();
            assert_eq!(outcome.code(), 6, "{verb} {case}");
            assert!(outcome.message().contains(complaint), "{verb} {case}: {outcome:?}");
            assert!(outcome.calls.is_empty(), "{verb} {case}");
        }
    }
}

#[test]
fn document_of_8_mib_is_accepted_and_larger_is_refused() {
    let sized = |size: usize| {
        let mut config = config_with("padding", json!(""));
        let padding = size - config.to_string().len();
        config["padding"] = "x".repeat(padding).into();
        Call::of("STATUS").config(&config).run()
    };
    sized(8 << 20).silent();
    let outcome = sized((8 << 20) + 1);
    assert_eq!(outcome.code(), 6);
    assert_eq!(outcome.message(), "the configuration on stdin is larger than 8 MiB: make it smaller");
    assert!(outcome.calls.is_empty());
}

/// Runtimes cut events at 1024 bytes: what is quoted is cut, and what to do next is not.
#[test]
fn an_error_about_something_huge_is_short_and_whole() {
    let long = "x".repeat(100_000);
    let name = |key: &str, value: &str| Call::of("ADD").config(&config_with(key, json!(value))).run();
    let calls = [
        (name("cniVersion", &long), "set cniVersion to one of these"),
        (name("name", &long.replace('x', "é")), "correct the network configuration"),
        (name("mtu", &long), "correct the network configuration"),
        (name("prevResult", &long), "the runtime writes this field"),
        (Call::of("ADD").with("CNI_ARGS", format!("{long}=1;{long}=2")).run(), "the runtime sets them"),
        (Call::of("ADD").with("CNI_ARGS", long.clone()).run(), "the runtime sets them"),
        (Call::of("ADD").with("CNI_CONTAINERID", format!("/{long}")).run(), "the runtime sets them"),
        (Call::of("ADD").with("CNI_IFNAME", long.clone()).run(), "the runtime sets them"),
        (Call::of(&long).run(), "or is not a CNI runtime"),
    ];
    for (outcome, next) in calls {
        let message = outcome.message();
        assert!(message.len() < 1024 && message.ends_with(next), "{message}");
    }
}

#[test]
fn a_key_given_twice_counts_as_given_last() {
    let stdin = br#"{"cniVersion":"0.1.0","name":"first","name":"second","mtu":"x","mtu":1,"cniVersion":"1.1.0"}"#;
    let outcome = Call::of("ADD").stdin(*stdin).run();
    outcome.result();
    let [PluginCall::Add(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((request.key.network.as_str(), request.conf.mtu), ("second", Some(1)));
    assert_eq!(request.config.version, Version::V1_1_0);
}

#[test]
fn missing_or_unknown_version_returns_code_1_with_supported_versions() {
    for version in [json!(""), json!("0.1.0"), json!("0.3.0"), json!("1.9.9"), json!(null)] {
        for verb in WITH_CONFIG {
            let outcome = Call::of(verb).config(&config_with("cniVersion", version.clone())).run();
            assert_eq!(outcome.code(), 1, "{verb} {version}");
            assert!(outcome.message().contains("0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{outcome:?}");
        }
    }
    assert_eq!(Call::of("ADD").config(&config_without("cniVersion")).run().code(), 1);
}

#[test]
fn a_missing_or_wrong_name_is_code_7() {
    for name in [json!(""), json!("a b"), json!("../x"), json!("-a"), json!(null)] {
        for verb in WITH_CONFIG {
            assert_eq!(Call::of(verb).config(&config_with("name", name.clone())).run().code(), 7, "{verb} {name}");
        }
    }
    assert_eq!(Call::of("GC").config(&config_without("name")).run().code(), 7);
}

/// Known fields, each with a wrong value and the path the complaint must begin with.
fn wrong_fields() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("type", json!(1), "type: it is a number, it must be a string"),
        ("runtimeConfig", json!([]), "runtimeConfig: it is an array, it must be an object"),
        ("prevResult", json!("x"), "prevResult: it is a string, it must be an object"),
        ("ipam", json!(true), "ipam: it is a boolean, it must be an object"),
        ("dns", json!([]), "dns: it is an array"),
        ("dns", json!({"search": [1]}), "dns.search: invalid type"),
        ("dns", json!({"nameservers": "10.0.0.1"}), "dns.nameservers: invalid type"),
        ("dns", json!({"domain": 1}), "dns.domain: it is a number"),
        ("disableGC", json!("perhaps"), "disableGC: it is a string, it must be true or false"),
        ("mtu", json!("9000"), "mtu: invalid type: string"),
        ("mtu", json!(-1), "mtu: invalid value"),
        ("mtu", json!(1.5), "mtu: invalid type: floating point"),
    ]
}

#[test]
fn field_of_wrong_type_returns_code_6_with_its_path() {
    for verb in ["ADD", "CHECK", "STATUS"] {
        for (key, value, complaint) in wrong_fields() {
            let outcome = Call::of(verb).config(&config_with(key, value)).run();
            assert_eq!(outcome.code(), 6, "{verb} {complaint}");
            assert!(outcome.message().starts_with(complaint), "{verb} {complaint}: {outcome:?}");
            assert_eq!(outcome.error()["cniVersion"], "1.1.0");
            assert!(outcome.calls.is_empty());
        }
    }
    for (key, verb) in ["cniVersion", "name"].into_iter().flat_map(|key| WITH_CONFIG.map(|verb| (key, verb))) {
        let outcome = Call::of(verb).config(&config_with(key, json!(1))).run();
        assert_eq!(
            outcome.message(),
            format!("{key}: it is a number, it must be a string; correct the network configuration")
        );
        assert_eq!(outcome.code(), 6);
    }
}

#[test]
fn del_and_gc_go_on_whatever_optional_field_is_wrong() {
    for (key, value, complaint) in wrong_fields() {
        let outcome = |verb| Call::of(verb).config(&config_with(key, value.clone())).run();
        let del = outcome("DEL");
        del.silent();
        let [PluginCall::Del(request)] = del.calls.as_slice() else { panic!("{del:?}") };
        let own = request.conf.as_ref().err().map(|error| error.msg.as_str());
        assert!(own.is_some_and(|own| own.starts_with(complaint)) == (key == "mtu"), "{complaint}: {own:?}");
        let gc = outcome("GC");
        if key == "disableGC" {
            assert_eq!((gc.code(), gc.calls.len()), (6, 0), "a disabled GC must not run");
        } else {
            gc.silent();
            assert!(matches!(gc.calls.as_slice(), [PluginCall::Gc(_)]), "{complaint}: {gc:?}");
        }
    }
}

#[test]
fn field_values_written_by_runtimes_and_people_are_accepted() {
    for (key, value) in [
        ("ipam", json!({})),
        ("dns", json!({"nameservers": ["fe80::1%eth0", "10.0.0.1"], "search": null, "domain": null})),
        ("runtimeConfig", json!(null)),
        ("prevResult", json!(null)),
        ("prevResult", json!({})),
        ("disableGC", json!("TRUE")),
        ("capabilities", json!({"portMappings": true})),
        ("type", json!(null)),
        ("unknown", json!({"deeply": [{"unknown": 1}]})),
        ("mtu", json!(9000)),
    ] {
        let outcome = Call::of("ADD").config(&config_with(key, value)).run();
        assert_eq!(outcome.exit, ExitCode::SUCCESS, "{key}: {outcome:?}");
    }
}

#[test]
fn a_request_keeps_the_whole_document() {
    let given = json!({
        "cniVersion": "1.0.0", "name": "n", "type": "noop",
        "ipam": {"type": "x"},
        "args": {"cni": {"ips": ["10.0.0.9"]}},
        "dns": {"nameservers": ["fe80::1%eth0"], "options": ["ndots:5"]},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}},
        "vendor": {"big": 18_446_744_073_709_551_615_u64, "small": -9_223_372_036_854_775_808_i64, "pi": 3.25},
    });
    let outcome = Call::of("ADD").config(&given).run();
    let [PluginCall::Add(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    let config = &request.config;
    assert_eq!(config.raw().to_string(), given.to_string(), "numbers and the order of keys included");
    assert_eq!(config.ipam().unwrap()["type"], "x");
    assert_eq!(config.args().unwrap()["ips"][0], "10.0.0.9");
    assert_eq!(config.dns.nameservers, ["fe80::1%eth0"]);
    assert_eq!(config.dns.options, ["ndots:5"]);
    assert_eq!(config.pod_annotations().unwrap().unwrap()["a"], "b");
    assert_eq!((config.runtime("mac"), config.prev_result.is_none()), (None, true));

    let mut wrong = given;
    wrong["runtimeConfig"]["io.kubernetes.cri.pod-annotations"] = json!([]);
    let outcome = Call::of("ADD").config(&wrong).run();
    let [PluginCall::Add(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    let error = request.config.pod_annotations().unwrap_err().to_string();
    assert!(error.contains("runtimeConfig.io.kubernetes.cri.pod-annotations: it is an array"), "{error}");
}
