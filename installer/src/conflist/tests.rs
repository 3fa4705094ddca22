//! Golden texts: what the runtime reads, byte for byte.

use super::*;

fn versions(texts: &[&str]) -> BTreeSet<Version> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn golden(name: &str) -> String {
    std::fs::read_to_string(format!("{}/golden/conflist/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn rendered(chain: &[&str], spoken: &[&str]) -> String {
    String::from_utf8(render(chain, &versions(spoken))).unwrap()
}

#[test]
fn with_portmap_only_its_versions_are_promised() {
    assert_eq!(rendered(&["vcn-native", "portmap"], &["1.0.0", "0.4.0", "0.3.1"]), golden("with_portmap.conflist"));
}

#[test]
fn alone_it_promises_all_of_ours() {
    assert_eq!(rendered(&["vcn-native"], &["0.3.1", "0.4.0", "1.0.0", "1.1.0"]), golden("alone.conflist"));
}
