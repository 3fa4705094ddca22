//! Calls to etcd itself, past the API server.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use anyhow::{Context, Result, anyhow};

const WITHIN: Duration = Duration::from_secs(60);

/// Makes it forget every revision but the newest.
pub(crate) async fn compact(etcd: SocketAddr) -> Result<()> {
    let everything = json!({ "key": "AA==", "range_end": "AA==", "count_only": true });
    let answer = call(etcd, "range", &everything).await?;
    let revision = answer.pointer("/header/revision").and_then(Value::as_str);
    let revision = revision.ok_or_else(|| anyhow!("etcd says no revision: {answer}"))?;
    call(etcd, "compaction", &json!({ "revision": revision, "physical": true })).await.map(drop)
}

/// The value of a key; `None` where there is no such key.
pub(crate) async fn value(etcd: SocketAddr, key: &str) -> Result<Option<Vec<u8>>> {
    let answer = call(etcd, "range", &json!({ "key": STANDARD.encode(key) })).await?;
    let value = answer.pointer("/kvs/0/value").and_then(Value::as_str);
    let invalid = |error| anyhow!("etcd's value of {key} is not base64: {error}");
    value.map(|text| STANDARD.decode(text).map_err(invalid)).transpose()
}

async fn call(etcd: SocketAddr, operation: &str, request: &Value) -> Result<Value> {
    let doing = || format!("call {operation} of etcd");
    let client = reqwest::Client::builder().timeout(WITHIN).no_proxy().build().with_context(doing)?;
    let sent = client.post(format!("http://{etcd}/v3/kv/{operation}")).json(request).send().await;
    let answer = sent.and_then(reqwest::Response::error_for_status).with_context(doing)?;
    answer.json().await.with_context(doing)
}
