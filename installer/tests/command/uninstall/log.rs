//! The log has the agent's format, and events that match the status.

use std::fs;

use serde_json::Value;

use super::kernel::Host;
use crate::node::Node;

/// The events of a run, and its last line.
fn events(text: &str) -> (Vec<String>, Value) {
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for line in &lines {
        for key in ["timestamp", "level", "event"] {
            assert!(line[key].is_string(), "{key} in {line}");
        }
        assert!(line.get("fields").is_none() && line.get("target").is_none(), "{line}");
    }
    let mut events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect();
    events.dedup();
    (events, lines.last().unwrap().clone())
}

#[test]
fn log_events_match_the_status() {
    let node = Node::installed();
    node.allocate();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 75, "{text}");
    let (all, last) = events(&text);
    assert_eq!(all, ["installer.uninstall_refused"]);
    assert!(last["why"].as_str().unwrap().contains("(default/web-0)"), "{last}");

    let (_, text) = node.uninstall(&Host::new(), &["--force", "--dry-run"]);
    let (all, last) = events(&text);
    assert_eq!(all.last().unwrap(), "installer.uninstall_planned", "{all:?}");
    assert_eq!(last["status"], "planned");

    fs::remove_file(node.path("bin/vcn-native")).unwrap();
    fs::create_dir(node.path("bin/vcn-native")).unwrap();
    let (_, text) = node.uninstall(&Host::new(), &["--force"]);
    let (all, last) = events(&text);
    assert!(all.contains(&"installer.uninstall_failed".to_owned()), "{all:?}");
    assert_eq!(
        (last["event"].as_str(), last["status"].as_str()),
        (Some("installer.uninstall_incomplete"), Some("failed"))
    );

    fs::remove_dir(node.path("bin/vcn-native")).unwrap();
    let (_, text) = node.uninstall(&Host::new(), &["--force"]);
    assert_eq!(events(&text).1["event"], "installer.uninstalled");
}
