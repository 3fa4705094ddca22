//! Tests of the tier check, on what cargo 1.95 and its harness print.

use super::harness::{Artifacts, artifacts, binaries};
use super::{check, report};

const LOG: &str = "   Compiling vcn v0.1.0
    Finished `test` profile
     Running unittests src/lib.rs (target/debug/deps/netlink-aa)

running 2 tests
test mac::tests::parses ... ok
test mac::tests::needs_hands ... ignored, a measurement: make scale
test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running tests/veth.rs (target/debug/deps/veth-bb)

running 1 test
test peers_hear_each_other ... RTNETLINK answers: File exists
ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s

     Running tests/vlan.rs (target/debug/deps/vlan-cc)

running 1 test
test tag_is_on_the_wire ... ignored, needs 802.1Q

test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests vcn

running 0 tests

test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

const GUEST_LOG: &str = "     Running tests/vlan.rs (target/debug/deps/vlan-cc)\r
\r
running 1 test\r
test tag_is_on_the_wire ... ok\r
\r
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.75s\r
";

fn built() -> Artifacts {
    let here = std::env::current_dir().unwrap();
    let line = |kind: &str, source: &str, program: &str| {
        format!(
            r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"],"src_path":"{}/{source}"}},"executable":"/t/{program}"}}"#,
            here.display()
        )
    };
    let messages = [
        line("lib", "crates/netlink/src/lib.rs", "netlink-aa"),
        line("test", "crates/netlink/tests/veth.rs", "veth-bb"),
        line("test", "crates/netlink/tests/vlan.rs", "vlan-cc"),
        r#"{"reason":"build-finished","success":true}"#.to_owned(),
    ];
    artifacts(&messages.join("\n")).unwrap()
}

#[track_caller]
fn findings(log: &str, guest_log: &str) -> Vec<String> {
    let artifacts = built();
    let found = check(&binaries(&artifacts, log), &binaries(&artifacts, guest_log));
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn both_tiers_ran_and_that_is_fine() {
    assert_eq!(findings(LOG, GUEST_LOG), [""; 0]);
}

#[test]
fn the_table_counts_by_tier() {
    let artifacts = built();
    let table = report::table(&binaries(&artifacts, LOG), &binaries(&artifacts, GUEST_LOG));
    let expected = "\
tier                              programs  passed  seconds
pure                                     1       1      0.2
kernel, in namespaces                    1       1      0.5
kernel, in a guest                       1       1      0.8
ignored: 1 (a measurement: make scale)
";
    assert_eq!(table, expected);
}

#[test]
fn empty_guest_run_is_reported_with_every_skipped_test() {
    assert_eq!(
        findings(LOG, ""),
        [
            "tests in a guest: none ran, and some must [tiers]",
            "crates/netlink/tests/vlan.rs tag_is_on_the_wire: ignored here (needs 802.1Q) and not run in a guest \
             [tiers]",
        ]
    );
}

#[test]
fn a_test_that_the_guest_ignores_too_did_not_run() {
    let guest = format!("{GUEST_LOG}{}", GUEST_LOG.replace("vlan", "other"))
        .replace("tag_is_on_the_wire ... ok", "tag_is_on_the_wire ... ignored, needs 802.1Q");
    assert_eq!(findings(LOG, &guest).len(), 1);
}

#[test]
fn a_missing_namespace_tier_is_found() {
    let log = LOG.replace("1 passed; 0 failed; 0 ignored", "0 passed; 0 failed; 0 ignored");
    assert_eq!(findings(&log, GUEST_LOG), ["tests in namespaces: none ran, and some must [tiers]"]);
}

#[test]
fn ignoring_without_a_reason_is_found() {
    let log = LOG.replace("ignored, a measurement: make scale", "ignored");
    assert_eq!(
        findings(&log, GUEST_LOG),
        [
            "crates/netlink/src/lib.rs mac::tests::needs_hands: ignored without a reason: #[ignore = \"needs …\"] [tiers]"
        ]
    );
}
