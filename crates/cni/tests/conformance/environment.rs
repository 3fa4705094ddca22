//! Every variable, missing, empty or wrong, under every verb.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use cni::ErrorCode;

use crate::call::Call;
use crate::noop::PluginCall;

/// For each variable the verbs that cannot do without it, and a value that is wrong to all who read it.
const VARIABLES: [(&str, &[&str], Option<&str>); 5] = [
    ("CNI_CONTAINERID", &["ADD", "DEL", "CHECK"], Some("../x")),
    ("CNI_IFNAME", &["ADD", "DEL", "CHECK"], Some("../../etc")),
    ("CNI_NETNS", &["ADD", "CHECK"], None),
    ("CNI_PATH", &[], None),
    ("CNI_ARGS", &[], None),
];

const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"];

#[test]
fn each_verb_requires_only_its_own_variables() {
    for verb in VERBS {
        for (variable, needed_by, wrong) in VARIABLES {
            let case = format!("{verb} {variable}");
            for call in [Call::of(verb).without(variable), Call::of(verb).with(variable, "")] {
                let outcome = call.run();
                if needed_by.contains(&verb) {
                    assert_eq!(outcome.code(), 4, "{case}");
                    assert!(outcome.message().contains(&format!("missing or empty: {variable};")), "{outcome:?}");
                    assert!(outcome.calls.is_empty(), "{case}");
                } else {
                    assert_eq!(outcome.exit, ExitCode::SUCCESS, "{case}: {outcome:?}");
                }
            }
            let Some(wrong) = wrong else { continue };
            for wrong in [OsString::from(wrong), OsString::from_vec(vec![b'a', 0xff])] {
                let outcome = Call::of(verb).with(variable, wrong).run();
                if needed_by.contains(&verb) {
                    assert_eq!(outcome.code(), 4, "{case}");
                    assert!(outcome.message().contains(&format!("{variable}: ")), "{outcome:?}");
                } else {
                    assert_eq!(outcome.exit, ExitCode::SUCCESS, "{case}: {outcome:?}");
                }
            }
        }
    }
}

#[test]
fn netns_path_that_is_not_utf8_fails_only_when_required() {
    let netns = || OsString::from_vec(b"/run/netns/\xff".to_vec());
    for verb in ["ADD", "CHECK"] {
        let outcome = Call::of(verb).with("CNI_NETNS", netns()).run();
        assert_eq!(outcome.code(), 4, "{outcome:?}");
        assert!(outcome.message().contains("CNI_NETNS: ") && outcome.message().contains("is not UTF-8"), "{outcome:?}");
    }
    assert_eq!(Call::of("DEL").with("CNI_NETNS", netns()).run().exit, ExitCode::SUCCESS);
}

#[test]
fn all_missing_variables_are_in_one_error() {
    let bare = |verb| Call::of(verb).without("CNI_CONTAINERID").without("CNI_NETNS").without("CNI_IFNAME").run();
    for (verb, list) in [
        ("ADD", "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"),
        ("CHECK", "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"),
        ("DEL", "CNI_CONTAINERID, CNI_IFNAME"),
    ] {
        assert_eq!(
            bare(verb).message(),
            format!("{verb} needs variables that are missing or empty: {list}; the runtime sets them")
        );
    }
}

#[test]
fn all_wrong_variables_are_in_one_error() {
    let outcome = Call::of("ADD")
        .with("CNI_CONTAINERID", "a b")
        .with("CNI_IFNAME", "0123456789abcdef")
        .with("CNI_ARGS", "x")
        .run();
    for part in ["CNI_CONTAINERID: \"a b\"", "CNI_IFNAME: \"0123456789abcdef\"", "CNI_ARGS: \"x\" is not KEY=VALUE"] {
        assert!(outcome.message().contains(part), "{outcome:?}");
    }
}

#[test]
fn container_ids_may_have_capitals_and_ifnames_fifteen_bytes() {
    for (variable, value) in [("CNI_CONTAINERID", "ABC.def_9-0"), ("CNI_IFNAME", "0123456789abcde")] {
        Call::of("ADD").config(&crate::call::config_without("prevResult")).with(variable, value).run().result();
    }
    for wrong in ["a/b", "a:b", "a b", ".", "..", "0123456789abcdef"] {
        assert_eq!(Call::of("ADD").with("CNI_IFNAME", wrong).run().code(), 4, "{wrong}");
    }
}

#[test]
fn unknown_commands_are_refused_by_name() {
    for command in ["add", "Add", "PING", " ADD", "ADD "] {
        let outcome = Call::of(command).run_without_stdin();
        assert_eq!(outcome.code(), 4);
        assert!(outcome.message().starts_with(&format!("unknown CNI_COMMAND: {command};")), "{outcome:?}");
    }
}

#[test]
fn without_a_command_the_plugin_introduces_itself_on_stderr() {
    for call in [Call::of("").without("CNI_COMMAND"), Call::of("")] {
        let outcome = call.run_without_stdin();
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (ExitCode::SUCCESS, ""));
        assert_eq!(
            outcome.stderr,
            "noop: attaches nothing\nCNI protocol versions supported: 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
        );
    }
}

#[test]
fn invalid_args_fail_add_but_not_del() {
    for wrong in [OsString::from("oops"), "UNKNOWN=1".into(), OsString::from_vec(b"A=\xff".to_vec())] {
        for verb in ["ADD", "CHECK"] {
            assert_eq!(Call::of(verb).with("CNI_ARGS", wrong.clone()).run().code(), 4, "{verb}");
        }
        for verb in ["STATUS", "GC", "VERSION"] {
            assert_eq!(Call::of(verb).with("CNI_ARGS", wrong.clone()).run().exit, ExitCode::SUCCESS, "{verb}");
        }
        let outcome = Call::of("DEL").with("CNI_ARGS", wrong).run();
        outcome.silent();
        let [PluginCall::Del(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
        assert_eq!(request.args.pod_name, None);
    }
}

#[test]
fn netns_of_the_plugin_is_permitted_only_with_override() {
    let permitted = |value: &str, is_own| {
        let outcome = Call::of("ADD").with("CNI_NETNS_OVERRIDE", value).run();
        let [PluginCall::Add(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
        request.netns.permit(is_own)
    };
    for value in ["1", "true", "TRUE"] {
        assert_eq!(permitted(value, true), Ok(()), "{value}");
    }
    for value in ["", "0", "yes"] {
        assert_eq!(permitted(value, false), Ok(()), "{value}");
        let error = permitted(value, true).unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID_NETNS, "{value}");
        assert!(error.msg.starts_with("CNI_NETNS /run/netns/missing is the network namespace this plugin runs in: "));
    }
}

#[test]
fn request_contains_attachment_key_and_pod() {
    let outcome = Call::of("ADD").run();
    let [PluginCall::Add(request)] = outcome.calls.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(request.key.to_string(), "Net_1/Pod_1.a-b/eth0");
    assert_eq!(request.netns.path(), std::path::Path::new("/run/netns/missing"));
    assert_eq!(request.args.pod_namespace.as_deref(), Some("ns"));
    assert_eq!(request.args.pod_name.as_deref(), Some("web-0"));
    assert_eq!(request.args.pod_uid.as_deref(), Some("u-1"));
}
