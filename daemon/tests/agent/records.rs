//! What plugins report about their runs, through the socket or the file: it becomes lines and metrics, once. Plugins do not depend
//! on the agent's state.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use telemetry::{Delivery, Sink, VerbRecord, log_path};

use crate::node::{Agent, Node, wait_for};

pub(crate) fn record(verb: &str, container: impl ToString) -> VerbRecord {
    let mut record = VerbRecord::begin("vcn-native", "0.1.0", verb);
    record.container_id = container.to_string();
    record.ifname = "eth0".into();
    record.phases = vec![("ipam".into(), 120), ("network".into(), 1100)];
    record.total_micros = 1500;
    record
}

fn ok_adds(node: &Node) -> u32 {
    node.metric(r#"cni_verb_seconds_count{plugin="vcn-native",verb="ADD",phase="total",code="0"}"#)
}

fn wait_for_adds(node: &Node, agent: &Agent, count: u32) {
    wait_for("the records", || ok_adds(node) == count, || format!("{} of {count}\n{}", ok_adds(node), agent.log()));
}

#[test]
fn plugin_run_has_a_log_line() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let sink = Sink::new(node.path("run"));
    let mut fine = record("ADD", "c1");
    fine.pod_namespace = Some("default".into());
    fine.pod_name = Some("web-0".into());
    fine.addresses = vec!["10.0.33.33".parse().unwrap()];
    assert_eq!(sink.send(&fine), Delivery::Agent);
    let failed = VerbRecord { code: 11, message: "no address is free".into(), ..record("ADD", "c2") };
    assert_eq!(sink.send(&failed), Delivery::Agent);
    wait_for("the lines", || agent.events("cni.failed").len() == 1, || agent.log());
    let line = &agent.events("cni.done")[0];
    for (field, value) in [
        ("level", "INFO"),
        ("verb", "ADD"),
        ("namespace", "default"),
        ("pod", "web-0"),
        ("container", "c1"),
        ("interface", "eth0"),
        ("addresses", "10.0.33.33"),
        ("phases", "ipam=120,network=1100"),
        ("message", "ADD default/web-0 10.0.33.33 in 1.5 ms"),
    ] {
        assert_eq!(line[field], value, "{field} of {line}");
    }
    assert_eq!((line["total_micros"].as_u64(), line["late"].is_null()), (Some(1500), true));
    let line = &agent.events("cni.failed")[0];
    assert_eq!((line["level"].as_str(), line["code"].as_u64()), (Some("WARN"), Some(11)));
    assert!(line["message"].as_str().unwrap().ends_with("no address is free"), "{line}");
    assert_eq!(node.metric(r#"pod_attachments{state="tentative"}"#), 0);
}

#[test]
fn records_written_without_agent_are_read_once() {
    let node = Node::with_pods();
    std::fs::create_dir(node.path("run")).unwrap();
    let sink = Sink::new(node.path("run"));
    for number in 0..50 {
        assert_eq!(sink.send(&record("ADD", number)), Delivery::Log);
    }
    std::fs::write(node.path("run/verbs.log.1"), "no record\n").unwrap();
    let agent = node.agent(&[]);
    // The last that is done with a file.
    wait_for("the damaged line", || node.metric("cni_records_refused_total") == 1, || agent.log());
    let lines = agent.events("cni.done");
    assert_eq!(lines.len(), 50);
    assert!(lines.iter().enumerate().all(|(at, line)| line["container"] == format!("{at}") && line["late"] == true));
    assert_eq!(ok_adds(&node), 50);
    assert!(!log_path(&node.path("run")).exists());
    agent.stop();
    let agent = node.ready_agent(&[]);
    assert_eq!(sink.send(&record("ADD", "new")), Delivery::Agent);
    wait_for_adds(&node, &agent, 1);
}

#[test]
fn hanging_agent_delays_no_plugin_and_loses_no_record() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    agent.signal(Signal::SIGSTOP);
    let sink = Sink::new(node.path("run"));
    let begun = Instant::now();
    (0..1000).for_each(|number| assert_ne!(sink.send(&record("ADD", number)), Delivery::Lost));
    println!("all of 1000 took {:?}", begun.elapsed());
    // Far less than if each waited for as little as a tenth of a second.
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    assert!(log_path(&node.path("run")).exists(), "the queue must have filled");
    agent.signal(Signal::SIGCONT);
    wait_for_adds(&node, &agent, 1000);
    wait_for("the file to go", || !log_path(&node.path("run")).exists(), || agent.log());
}
