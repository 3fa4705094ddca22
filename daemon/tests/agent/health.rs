//! Health signals of the running agent: on the command line, in metrics and in the log.

use serde_json::Value;

use crate::node::Node;
use crate::running::wait_for;

#[test]
fn signals_are_reported_with_cause_and_next_step() {
    let node = Node::with_pods();
    sandbox::copy_program(&node.path("source/vcn-native"), &node.path("source/vnic-attach")).unwrap();
    let agent = node.ready_agent(&["--node-ip", "10.0.33.7", "--node-name", "10.0.10.7"]);
    let has = |line: &str| node.get("/metrics").1.lines().any(|found| found == line);
    for line in [
        r#"oke_node_agent_signal{signal="node_ip_mismatch",result="problem"} 1"#,
        r#"oke_node_agent_signal_value{signal="node_ip_mismatch"} 1.0"#,
        r#"oke_node_agent_signal{signal="hostname_mismatch",result="healthy"} 1"#,
        r#"oke_node_agent_signal_value{signal="pool_free"} 16.0"#,
        r#"oke_node_agent_signal{signal="vnic_problems",result="healthy"} 1"#,
        r#"oke_node_agent_signal{signal="metadata_latency",result="healthy"} 1"#,
        r#"oke_node_agent_signal{signal="kernel_io_errors",result="not_applicable"} 1"#,
        r#"oke_node_agent_signal{signal="kubelet_running",result="unknown"} 1"#,
    ] {
        wait_for(line, || has(line), || node.get("/metrics").1);
    }
    let problem = &agent.events("signal.problem")[0];
    assert_eq!((&problem["signal"], &problem["rule"]), (&"node_ip_mismatch".into(), &"node-ip-not-primary".into()));
    let output = node.output(&["health"]);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for words in [
        "1. node_ip_mismatch (critical), for ",
        "Measured: yes (the Node has 10.0.33.7); healthy: no",
        "Next: Set the kubelet's `--node-ip`",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let state = |signal: &str| {
        let report: Value = serde_json::from_slice(&node.output(&["health", "-o", "json"]).stdout).unwrap();
        let mut states = report["signals"].as_array().unwrap().iter();
        states.find(|state| state["signal"] == signal).cloned().unwrap_or_default()
    };
    let problem = state("node_ip_mismatch");
    assert_eq!((&problem["verdict"], &problem["everySeconds"]), (&"problem".into(), &300.into()));
    // Known only while the installed files are those of the agent's image.
    for signal in ["version_plugin", "version_attach_plugin"] {
        wait_for(signal, || state(signal)["detail"] == env!("CARGO_PKG_VERSION"), || state(signal).to_string());
    }
}
