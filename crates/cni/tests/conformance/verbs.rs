//! Which verb answers what, and from which version on.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::call::{Call, config, config_with, config_without};
use crate::noop::PluginCall;

#[test]
fn version_answers_without_reading_stdin_or_any_other_variable() {
    let call = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH", "CNI_ARGS"]
        .into_iter()
        .fold(Call::of("VERSION"), Call::without);
    assert_eq!(
        call.run_without_stdin().result(),
        json!({"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]})
    );
}

#[test]
fn a_verb_is_refused_below_the_version_that_introduced_it() {
    for (verb, first) in [("ADD", "0.3.1"), ("DEL", "0.3.1"), ("CHECK", "0.4.0"), ("STATUS", "1.1.0"), ("GC", "1.1.0")]
    {
        for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let outcome = Call::of(verb).config(&config(version)).run();
            if version >= first {
                assert_eq!(outcome.exit, ExitCode::SUCCESS, "{verb} {version}: {outcome:?}");
            } else {
                assert_eq!(outcome.code(), 1, "{verb} {version}");
                assert_eq!(outcome.error()["cniVersion"], version);
                assert!(outcome.message().contains(&format!("{verb} needs {first} or later: raise it")), "{outcome:?}");
            }
        }
    }
}

#[test]
fn only_add_has_a_result() {
    let outcome = Call::of("ADD").config(&config_without("prevResult")).run();
    assert_eq!(outcome.result()["ips"][0]["address"], "127.0.0.1/32");
    for verb in ["DEL", "CHECK", "STATUS", "GC"] {
        Call::of(verb).run().silent();
    }
}

#[test]
fn plugin_error_is_the_only_reply_in_requested_version() {
    for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
        for code in [3, 11, 50, 51, 101, 256] {
            let outcome = Call::of(verb).config(&config_with("fail", json!(code))).run();
            assert_eq!(outcome.code(), code, "{verb}");
            assert_eq!((outcome.error()["cniVersion"].as_str(), outcome.stderr.as_str()), (Some("1.1.0"), ""));
        }
    }
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let mut config = config(version);
        config["fail"] = 11.into();
        assert_eq!(Call::of("DEL").config(&config).run().error()["cniVersion"], version);
    }
}

#[test]
fn del_error_avoids_words_that_runtimes_treat_as_success() {
    let message = |verb| Call::of(verb).config(&config_with("fail", json!(101))).run().message();
    assert_eq!(message("DEL"), "failed as requested: absent");
    assert_eq!(message("ADD"), "failed as requested: not found");
}

#[test]
fn del_needs_no_previous_result_and_check_does() {
    Call::of("DEL").config(&config_without("prevResult")).run().silent();
    let outcome = Call::of("CHECK").config(&config_without("prevResult")).run();
    assert_eq!(outcome.code(), 7);
    assert!(outcome.calls.is_empty());
}

/// The keys that GC had to keep.
fn kept(config: &Value) -> Vec<String> {
    let outcome = Call::of("GC").config(config).run();
    outcome.silent();
    let [PluginCall::Gc(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    request.valid.iter().flatten().map(ToString::to_string).collect()
}

#[test]
fn gc_takes_the_list_under_either_key_and_both_together() {
    let item = |id: &str| json!({"containerID": id, "ifname": "eth0"});
    let with = |keys: &[(&str, Value)]| {
        let mut config = config_without("cni.dev/valid-attachments");
        for (key, value) in keys {
            config[*key] = value.clone();
        }
        config
    };
    let (new, old) = ("cni.dev/valid-attachments", "cni.dev/attachments");
    assert_eq!(kept(&with(&[(new, json!([item("a"), item("b"), item("a")]))])), ["Net_1/a/eth0", "Net_1/b/eth0"]);
    assert_eq!(kept(&with(&[(old, json!([item("a")]))])), ["Net_1/a/eth0"]);
    assert_eq!(kept(&with(&[(new, json!([item("a")])), (old, json!([item("b")]))])), ["Net_1/a/eth0", "Net_1/b/eth0"]);
    assert_eq!(kept(&with(&[(new, json!([item("a")])), (old, Value::Null)])), ["Net_1/a/eth0"]);
}

#[test]
fn gc_accepts_empty_list_and_refuses_missing_list() {
    assert!(kept(&config_with("cni.dev/valid-attachments", json!([]))).is_empty());
    let outcome = Call::of("GC").config(&config_without("cni.dev/valid-attachments")).run();
    assert_eq!(outcome.code(), 7);
    assert!(outcome.message().starts_with("GC without cni.dev/valid-attachments: refused"), "{outcome:?}");
    assert!(outcome.calls.is_empty());
}

/// As Go writes a list that was never made.
#[test]
fn gc_keeps_everything_when_the_list_is_null() {
    let outcome = Call::of("GC").config(&config_with("cni.dev/valid-attachments", Value::Null)).run();
    outcome.silent();
    let [PluginCall::Gc(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(request.valid, None);
}

#[test]
fn gc_refuses_a_list_it_cannot_read_to_the_end() {
    for (list, complaint) in [
        (json!({}), "cni.dev/valid-attachments: it is an object, it must be an array"),
        (json!([1]), "cni.dev/valid-attachments[0]: it is a number, it must be an object"),
        (json!([{"ifname": "eth0"}]), "cni.dev/valid-attachments[0].containerID: it is null, it must be a string"),
        (
            json!([{"containerID": "a", "ifname": "eth0"}, {"containerID": "a", "ifname": 1}]),
            "cni.dev/valid-attachments[1].ifname: it is a number, it must be a string",
        ),
    ] {
        let outcome = Call::of("GC").config(&config_with("cni.dev/valid-attachments", list)).run();
        assert_eq!(outcome.code(), 6);
        assert_eq!(outcome.message(), format!("{complaint}; the runtime writes this field"));
        assert!(outcome.calls.is_empty());
    }
}

#[test]
fn gc_ignores_identifiers_that_can_never_be_valid() {
    let list = json!([{"containerID": "../x", "ifname": "eth0"}, {"containerID": "a", "ifname": "eth0"}]);
    assert_eq!(kept(&config_with("cni.dev/valid-attachments", list)), ["Net_1/a/eth0"]);
}

#[test]
fn disabled_gc_does_nothing_and_succeeds() {
    for yes in [json!(true), json!("true"), json!("True")] {
        let outcome = Call::of("GC").config(&config_with("disableGC", yes)).run();
        outcome.silent();
        assert!(outcome.calls.is_empty());
    }
    assert_eq!(kept(&config_with("disableGC", json!("false"))), ["Net_1/a/eth0"]);
}
