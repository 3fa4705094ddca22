//! What controllers and agents exchange, and the rules of an operator. A compromised node writes its announcement and summary.

use channel::{Announcement, Fingerprint};
use health::rules::{Hardware, Rules, RulesText};
use health::summary::{SUMMARY_MAX, Summary};
use nettest::probe::{ProbeRequest, Task};
use serde_json::{Value, json};

/// The input is the annotation of an agent's Pod, and a key of the ConfigMap with the controllers' keys.
pub(super) fn announcement(input: &[u8]) {
    if let Ok(announcement) = serde_json::from_slice::<Announcement>(input) {
        let text = serde_json::to_vec(&announcement).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<Announcement>(&text).ok(), Some(announcement));
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(key) = text.parse::<Fingerprint>() {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
}

/// The input is an agent's answer.
pub(super) fn summary(input: &[u8]) {
    let Ok(summary) = serde_json::from_slice::<Summary>(input) else { return };
    let (checks, bare) = (summary.checks.len(), Summary { checks: Vec::new(), ..summary.clone() });
    let bounded = summary.bounded();
    assert_eq!(bounded.checks.len() + bounded.left_out, checks + bare.left_out, "each check is in it or counted");
    let length = serde_json::to_vec(&bounded).map_or(0, |text| text.len());
    assert!(length <= SUMMARY_MAX || bounded.checks.is_empty(), "{length} bytes");
    assert!(bounded.etag().len() <= 18);
}

/// The input is the file HEALTH_RULES.
pub(super) fn rules(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (shipped, Rules { rules, problems }) =
        (Rules::shipped(), Rules::read(&[RulesText { source: "HEALTH_RULES", text }]));
    assert!(problems.iter().all(|problem| !problem.is_empty()));
    for rule in &rules {
        assert!((1..=rule.samples.of).contains(&rule.samples.bad), "{rule:?}");
        for (shape, memory) in
            [(None, None), (Some("BM.GPU.H100.8"), Some(2000.0)), (Some("VM.Standard.E5.Flex"), Some(1.0))]
        {
            let _ = rule.applies(Hardware { shape, memory });
        }
    }
    // Without a document there is nothing that could change a rule.
    if serde_json::from_str::<Value>(text).is_err() {
        assert_eq!((rules, problems.len()), (shipped.rules, 1));
    }
}

/// The input is the body of the controller's request.
pub(super) fn probe_request(input: &[u8]) {
    match ProbeRequest::read(input) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(request) => {
            let text = serde_json::to_vec(&request).unwrap_or_default();
            assert_eq!(ProbeRequest::read(&text), Ok(request.clone()));
            if let Task::Send(send) = request.task {
                assert!(send.longest_ms() <= nettest::probe::bounds::TASK_MAX_MS, "{send:?}");
            }
        }
    }
}

pub(super) fn announcements() -> Vec<Vec<u8>> {
    let key = Fingerprint::of(b"key");
    let announcement = json!({ "port": 9810, "key": key.to_string() });
    vec![announcement.to_string().into_bytes(), key.to_string().into_bytes()]
}

pub(super) fn summaries() -> Vec<Vec<u8>> {
    let check = json!({ "name": "conntrack_use", "subject": "ens3", "area": "network", "verdict": "problem",
        "severity": "critical", "action": "repair", "message": "The table is nearly full.", "sinceUnixMillis": 7 });
    let summary = json!({ "version": 1, "node": "10.0.0.2", "instance": "ocid1.instance.oc1.iad.a", "shape": "BM.GPU.H100.8",
        "agent": "0.2.0", "ready": true, "counts": { "problem": 1, "healthy": 60 }, "checks": vec![check; 3], "leftOut": 2 });
    vec![summary.to_string().into_bytes()]
}

pub(super) fn rule_files() -> Vec<Vec<u8>> {
    let file = json!({ "rules": [
        { "name": "conntrack-nearly-full", "bound": 55, "action": "repair" },
        { "name": "x", "signal": "pids", "is": "above", "bound": 5, "samples": { "bad": 2, "of": 3 }, "message": "Many.",
          "shapes": ["BM.*.H100*"], "exceptShapes": ["*.8"], "memoryGiB": {"from": 1, "below": 64} },
        { "name": "pids-nearly-used-up", "off": true },
    ] });
    vec![file.to_string().into_bytes()]
}

pub(super) fn probe_requests() -> Vec<Vec<u8>> {
    let flow =
        json!({ "protocol": "tcp", "source": "10.0.0.2", "target": "10.0.0.3", "sourcePort": 40000, "port": 443 });
    [
        json!({ "send": { "kind": "TCP", "target": { "address": "10.0.0.3" }, "port": 443, "count": 5, "intervalMs": 200,
            "timeoutMs": 1000, "source": "10.0.0.2", "sourcePort": 40000, "forceLink": true } }),
        json!({ "send": { "kind": "DNS", "target": { "service": "dns" }, "count": 1, "intervalMs": 100, "timeoutMs": 1000,
            "name": "example.com", "overTcp": true } }),
        json!({ "watch": { "flow": flow, "forMs": 3000 } }),
        json!({ "open": flow }),
    ]
    .map(|task| json!({ "version": 1, "task": task }).to_string().into_bytes())
    .into()
}
