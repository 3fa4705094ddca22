//! Links that appear before the metadata service lists their VNIC, and the journal after errors of the disk.

use std::fs;
use std::time::Duration;

use tunables::links::LinkFacts;

use super::journal::{ITEMS_MAX, ProvenValue, RejectedValue};
use super::*;
use crate::fixture;

fn applier(data_dir: &Path) -> LinkApplier {
    let agent = fixture::agent(&[&format!("--data-dir={}", data_dir.display())]);
    LinkApplier::new(agent.settings.clone(), agent.boot.clone())
}

fn link(name: &str, last: u8, is_configured: bool) -> ObservedLink {
    let link = fixture::link(name, last);
    let facts = LinkFacts { name: name.to_owned(), mac: identity(&link), is_configured, ..LinkFacts::default() };
    ObservedLink { link, facts }
}

#[test]
fn link_that_is_newer_than_the_list_of_vnics_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut applier = applier(folder.path());
    let mut facts = NodeFacts::default();
    let mut unknown = |facts: &NodeFacts, links: &[ObservedLink]| applier.unknown(facts, links);
    let [primary, other, attached] = [link("ens3", 0x0a, true), link("ens4", 0x0c, false), link("ens5", 0x0b, false)];
    let first = [primary.clone(), other.clone()];
    assert_eq!(unknown(&facts, &first), ["ens4"], "without a list of VNICs");
    facts.vnics.absorb(Ok(fixture::vm_vnics()), Instant::now());
    assert_eq!(unknown(&facts, &first), [""; 0], "the list came after these links, and names one of them");
    std::thread::sleep(Duration::from_millis(2));
    let all = [primary.clone(), other.clone(), attached];
    assert_eq!(unknown(&facts, &all), ["ens5"], "attached since");
    // The same name, and another device.
    let replaced = [primary, link("ens4", 0x0d, false)];
    assert_eq!(unknown(&facts, &replaced), ["ens4"]);
    facts.vnics.absorb(Ok(fixture::vm_vnics()), Instant::now());
    assert_eq!(unknown(&facts, &replaced), [""; 0]);
}

#[test]
fn nothing_changes_before_the_journal_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(vcn::LINK_JOURNAL_FILE);
    let mut applier = applier(folder.path());
    // After an error of the disk the next change would replace the only copy of addresses and routes.
    fs::create_dir(&path).unwrap();
    assert!(applier.recover().is_err());
    fs::remove_dir(&path).unwrap();
    let saved =
        r#"{"name": "ens3", "mac": null, "index": 2, "mtu": 1500, "settings": {}, "addresses": [], "routes": []}"#;
    let change = format!(r#"{{"bootId": "another", "links": [{saved}], "steps": []}}"#);
    fs::write(&path, format!(r#"{{"version": 1, "unfinished": {change}}}"#)).unwrap();
    // In another boot, and without such a link, nothing is left of it.
    applier.recover().unwrap();
    assert!(fs::read_to_string(&path).unwrap().starts_with('{') && !has_unfinished_change(folder.path()));
    // A damaged file has no copy.
    for text in ["", "{", r#"{"unfinished": {}}"#] {
        fs::write(&path, text).unwrap();
        assert_eq!(self::applier(folder.path()).recover(), Ok(()), "{text}");
    }
    self::applier(Path::new("/nonexistent")).recover().unwrap();
}

#[test]
fn proven_and_rejected_values_do_not_displace_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::new(folder.path());
    let rejected = |number: usize| RejectedValue {
        item: format!("link/ens{number}/mtu"),
        value: "1400".to_owned(),
        revision: "r".to_owned(),
        state: ItemState::Failed,
        attempts: 1,
        message: String::new(),
    };
    let proven = |number: usize| {
        let RejectedValue { item, value, .. } = rejected(number);
        ProvenValue { item, mac: None, value }
    };
    let added = journal.update(|content| {
        content.proven.extend((0..ITEMS_MAX + 5).map(proven));
        content.rejected.push(rejected(0));
    });
    added.unwrap();
    let (kept, rejections) = (&journal.content.proven, &journal.content.rejected);
    assert_eq!((kept.len(), &kept[0], rejections.len()), (ITEMS_MAX, &proven(5), 1), "the latest of each sort");
}
