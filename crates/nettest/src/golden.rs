//! The recorded evidence of the tests. `evidence.yaml` of a case has what differs from the usual evidence: it is merged into that,
//! and `null` removes a field (RFC 7386).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::probe::Evidence;

/// The folders of the cases.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The evidence of a case: usually five TCP probes without an answer, between hosts whose counters do not rise.
pub(crate) fn evidence(case: &Path) -> Evidence {
    let mut differs: Value = serde_yaml_ng::from_str(&fs::read_to_string(case.join("evidence.yaml")).unwrap()).unwrap();
    let fields = differs.as_object_mut().unwrap();
    let [attempt, arrival] = ["attempt", "arrival"].map(|report| fields.remove(report));
    let mut all = json!({
        "kind": "TCP", "port": 443,
        "source": { "node": "node-a", "address": "10.0.10.2" }, "target": { "node": "node-b", "address": "10.0.20.3" },
    });
    json_patch::merge(&mut all, &differs);
    let usual = json!({
        "tally": { "sent": 5, "failure": "silence" }, "taps": { "out": { "packets": 5, "device": "ens3" } },
        "source": "10.0.10.2", "target": all["target"]["address"], "subnet": "10.0.10.0/24",
        "route": { "device": "ens3", "expected": "ens3", "gateway": "10.0.10.1" },
    });
    all["attempt"] = report(usual, attempt.unwrap_or(json!({})));
    all["arrival"] = arrival.map_or(Value::Null, |arrival| report(json!({}), arrival));
    serde_json::from_value(all).unwrap_or_else(|error| panic!("{}: {error}", case.display()))
}

/// The host stays as it was before unless `after` says otherwise.
fn report(mut usual: Value, mut differs: Value) -> Value {
    usual["version"] = 1.into();
    usual["before"] = json!({
        "rpFilterDrops": 12, "rpFilter": 2, "neighbours": 40, "neighbourLimit": 1024, "neighbourOverflows": 0,
        "connections": 1200, "connectionLimit": 262_144, "connectionDrops": 0, "insertFailures": 0,
    });
    let after = differs.as_object_mut().unwrap().remove("after").unwrap_or(json!({}));
    json_patch::merge(&mut usual, &differs);
    let mut host = usual.get("before").cloned().unwrap_or(json!({}));
    json_patch::merge(&mut host, &after);
    usual["after"] = host;
    usual
}
