//! Every verb, successful and failing, one after the other.

use std::fs;

use host_harness::{Families, PATIENCE, assert_success, error_of, json_of, sh, within};
use serde_json::Value;

use crate::node::{Node, Pod, host_link};
use crate::surroundings::crowd::crowd;
use crate::surroundings::dump::{Dump, OurObjects, is_settled};

/// A crowded host, and what it was like before.
struct CrowdedHost {
    node: Node,
    before: Dump,
    ours: OurObjects,
}

impl CrowdedHost {
    fn new() -> Self {
        let node = Node::new(Families::Dual);
        crowd(&node);
        assert!(within(PATIENCE, || is_settled(&node)));
        let before = Dump::of(&node);
        Self { node, before, ours: OurObjects::default() }
    }

    fn add(&mut self, pod: &Pod) -> Value {
        let result = json_of(&self.node.cni("ADD", pod, &self.node.conf("1.1.0")));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.ours.links.push(host_link(&result));
        for ip in result.pointer("/ips").and_then(Value::as_array).unwrap() {
            let address = text(ip.get("address").unwrap()).split('/').next().unwrap().to_owned();
            let first = address.starts_with("10.0.0.") || address.starts_with("2001:db8::");
            self.ours.addresses.push((address, if first { "ens5" } else { "ens6" }));
        }
        result
    }

    /// No object of other programs is different, missing, new or elsewhere in its list.
    fn assert_unchanged(&self, after: &str) {
        let (before, now) = (self.before.without(&self.ours), Dump::of(&self.node).without(&self.ours));
        assert!(before == now, "{after}: {:#?}", before.difference(&now));
    }

    /// As if we had never been there.
    fn assert_as_before(&self, after: &str) {
        let now = Dump::of(&self.node);
        assert!(self.before == now, "{after}: {:#?}", self.before.difference(&now));
    }

    fn gc(&self, valid: &[&str]) {
        assert_success(&self.node.gc(valid));
    }
}

#[test]
fn foreign_state_is_unchanged_after_every_verb() {
    let mut host = CrowdedHost::new();
    assert!(host.before.lines() > 500, "the crowd is there");
    host.assert_as_before("nothing: the dump shows nothing that changes by itself");
    let (a, b, c) = (Pod::new("a"), Pod::new("b"), Pod::new("c"));
    let conf = host.node.conf("1.1.0");

    let mut with_result = conf.clone();
    with_result["prevResult"] = host.add(&a);
    let of_crowd = ["10.0.0.8", "2001:db8::8"].map(|address| (address.to_owned(), "ens5"));
    assert_eq!(host.ours.addresses, of_crowd, "the addresses that the crowd is about");
    host.assert_unchanged("ADD");
    host.add(&a);
    host.assert_unchanged("a repeated ADD");
    assert_success(&host.node.cni("CHECK", &a, &with_result));
    host.assert_unchanged("CHECK");
    assert_eq!(error_of(&host.node.cni("CHECK", &b, &with_result)).0, 108);
    host.assert_unchanged("a failed CHECK");
    assert_success(&host.node.call(&[("CNI_COMMAND", "STATUS")], &conf));
    json_of(&host.node.call(&[("CNI_COMMAND", "VERSION")], &conf));
    host.assert_unchanged("STATUS and VERSION");

    sh(&b.netns, "ip link add eth0 type bridge");
    assert_eq!(error_of(&host.node.cni("ADD", &b, &conf)).0, 106);
    host.assert_unchanged("a failed ADD");
    assert_success(&host.node.cni("DEL", &b, &conf));
    host.assert_unchanged("DEL of what is not there");

    host.add(&c);
    host.node.age();
    host.gc(&["a", "c"]);
    host.assert_unchanged("GC with nothing to do");
    host.gc(&["a"]);
    host.assert_unchanged("GC");
    assert_success(&host.node.cni("DEL", &a, &conf));
    host.assert_as_before("DEL");
    assert_success(&host.node.cni("DEL", &a, &conf));
    host.assert_as_before("a repeated DEL");
}

#[test]
fn foreign_state_is_unchanged_when_records_are_rebuilt() {
    let mut host = CrowdedHost::new();
    let (a, b) = (Pod::new("a"), Pod::new("b"));
    host.add(&a);
    let state = host.node.state.path();
    fs::remove_file(state.join("allocations.json")).unwrap();
    fs::remove_dir_all(state.join("allocations")).unwrap();
    host.add(&b);
    host.assert_unchanged("an ADD without record");
    fs::write(host.node.state.path().join("allocations.json"), "{").unwrap();
    for pod in [&a, &b] {
        assert_success(&host.node.cni("DEL", pod, &host.node.conf("1.1.0")));
    }
    host.assert_as_before("DEL with a damaged record");
}

#[test]
fn foreign_connections_and_marks_survive_del_of_the_address() {
    let mut host = CrowdedHost::new();
    host.node.change_pools(|vnics| {
        vnics.truncate(1);
        let families = &mut vnics[0].families;
        families.ipv4.as_mut().unwrap().addresses = vec!["10.0.0.8/32".parse().unwrap()];
        families.ipv6.as_mut().unwrap().addresses = vec!["2001:db8::8/128".parse().unwrap()];
    });
    let insert = "conntrack -I -p tcp -s 10.0.0.8 -d 10.0.0.1 --sport 5 --dport 80 --state ESTABLISHED --timeout 3600";
    for id in ["a", "b", "c"] {
        let pod = Pod::new(id);
        host.add(&pod);
        host.assert_unchanged("ADD with an address that others had");
        host.node.sh(insert);
        assert_success(&host.node.cni("DEL", &pod, &host.node.conf("1.1.0")));
        host.assert_as_before("DEL, by which the pod's own connection is forgotten");
    }
}

#[test]
fn del_and_gc_without_records_and_pools_remove_nothing() {
    let host = CrowdedHost::new();
    fs::remove_file(host.node.state.path().join("pools.json")).unwrap();
    let pod = Pod::new("a");
    assert_success(&host.node.cni("DEL", &pod, &host.node.conf("1.1.0")));
    host.gc(&[]);
    host.assert_as_before("DEL and GC of nothing");
}
