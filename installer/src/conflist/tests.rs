//! Golden texts: what the runtime reads, byte for byte.

use super::*;

fn golden(name: &str) -> String {
    std::fs::read_to_string(format!("{}/golden/conflist/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn rendered(chain: &[Entry], spoken: &[&str]) -> String {
    text(&wanted(chain, &spoken.iter().map(|text| text.parse().unwrap()).collect()))
}

#[test]
fn with_portmap_only_its_versions_are_promised() {
    let chain = [Entry::main(), Entry::named("portmap").unwrap()];
    assert_eq!(rendered(&chain, &["1.0.0", "0.4.0", "0.3.1"]), golden("with_portmap.conflist"));
}

#[test]
fn alone_it_promises_all_of_ours() {
    assert_eq!(rendered(&[Entry::main()], &["0.3.1", "0.4.0", "1.0.0", "1.1.0"]), golden("alone.conflist"));
}

#[test]
fn everything_that_settings_may_put_behind_it() {
    let behind =
        r#"["portmap", "bandwidth", {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}, "vnic-attach"]"#;
    let main = Entry::main().with("stateDir", "/var/run/vcn").with("mtu", 1500);
    let chain: Vec<_> = std::iter::once(main).chain(Entry::list(behind).unwrap()).collect();
    assert_eq!(rendered(&chain, &["0.4.0", "1.0.0"]), golden("everything.conflist"));
}

#[test]
fn an_older_plugin_chained_by_others_lowers_the_version() {
    assert_eq!(rendered(&[Entry::main()], &["0.3.1", "0.4.0"]), golden("lowered.conflist"));
}
