//! Requests within the bounds and beyond them, and addresses that are never probed.

use serde_json::{Value, json};

use super::*;

fn request(change: &Value) -> Result<ProbeRequest, ProbeError> {
    let mut send = json!({
        "kind": "TCP", "target": { "address": "10.0.0.2" }, "port": 443, "count": 3, "intervalMs": 50, "timeoutMs": 1000
    });
    let fields = send.as_object_mut().unwrap();
    fields.extend(change.as_object().unwrap().clone());
    let body = json!({ "version": 1, "task": { "send": send } }).to_string();
    ProbeRequest::read(body.as_bytes())
}

#[test]
fn request_within_its_bounds_is_read() {
    let read = request(&json!({})).unwrap();
    let again = ProbeRequest::read(serde_json::to_string(&read).unwrap().as_bytes()).unwrap();
    assert_eq!(read, again);
    assert!(request(&json!({ "count": 6, "timeoutMs": 4958 })).is_ok(), "29,998 ms");
    assert!(request(&json!({ "kind": "Throughput", "mbits": 100 })).is_ok());
}

#[test]
fn request_beyond_a_bound_is_refused() {
    for change in [
        json!({ "count": 0 }),
        json!({ "count": 101 }),
        json!({ "intervalMs": 9 }),
        json!({ "timeoutMs": 5001 }),
        json!({ "timeoutMs": 0 }),
        json!({ "count": 30, "timeoutMs": 1000 }),
        json!({ "size": 9001 }),
        json!({ "port": 0 }),
        json!({ "path": "/a b" }),
        json!({ "path": "/a\r\nHost: b" }),
        json!({ "name": "a b" }),
        json!({ "name": "x".repeat(254) }),
        json!({ "target": { "service": "peers" } }),
        json!({ "target": { "host": "" } }),
        json!({ "kind": "HTTPS", "target": { "service": "imds" } }),
        json!({ "follow": true }),
        json!({ "mbits": 10 }),
        json!({ "kind": "Throughput" }),
        json!({ "kind": "Throughput", "mbits": 10_001 }),
        json!({ "kind": "Throughput", "mbits": 0 }),
        json!({ "kind": "Throughput", "mbits": 10, "port": 0 }),
    ] {
        assert!(request(&change).is_err(), "{change}");
    }
    assert_eq!(ProbeRequest::read(&[b' '; REQUEST_MAX + 1]), Err(ProbeError::TooLong(REQUEST_MAX + 1)));
    let later = br#"{"version":2,"task":{"open":{"protocol":"tcp","source":"10.0.0.2","target":"10.0.0.3","sourcePort":1,"port":1}}}"#;
    assert_eq!(ProbeRequest::read(later), Err(ProbeError::Version(2)));
}

#[test]
fn receiver_listens_for_one_sender_on_an_unprivileged_port() {
    let receive = |change: Value| {
        let mut receive = json!({ "address": "10.0.0.3", "port": 5201, "from": "10.0.0.2", "forMs": 6_000 });
        receive.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        ProbeRequest::read(json!({ "version": 1, "task": { "receive": receive } }).to_string().as_bytes())
    };
    assert!(receive(json!({})).is_ok());
    for change in [
        json!({ "port": 22 }),
        json!({ "forMs": 30_001 }),
        json!({ "address": "127.0.0.1" }),
        json!({ "address": "0.0.0.0" }),
        json!({ "from": "169.254.169.254" }),
    ] {
        assert!(receive(change.clone()).is_err(), "{change}");
    }
}

#[test]
fn host_local_and_metadata_addresses_are_never_targets() {
    for address in [
        "127.0.0.1",
        "127.8.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.0.2",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "::ffff:0:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:fea9:fe:a9fe::",
        "64:ff9b:1:1:a9:fea9:fe00:0",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b:1:fffe::127.0.0.1",
        "64:ff9b:1::",
        "2002:a9fe:a9fe::1",
        "2002:7f00:1::",
        "2001:0:a9fe:a9fe::f5ff:fffd",
        "2001:0:cb00:7101::5601:5601",
        "2603:c020:0:1::5efe:169.254.169.254",
        "2603:c020:0:1:200:5efe:127.0.0.1",
        "2002:a00:2::5efe:169.254.169.254",
        "fe80::1",
        "ff02::1",
        "fd00:c1::a9fe:a9fe",
    ] {
        let refused = request(&json!({ "target": { "address": address } }));
        assert_eq!(refused, Err(ProbeError::Forbidden(address.parse().unwrap())), "{address}");
    }
    for address in [
        "10.0.0.2",
        "203.0.113.7",
        "2603:c020:0:1::2",
        "fd00:c1::1",
        "::ffff:10.0.0.2",
        "64:ff9b::10.0.0.2",
        "64:ff9b:1::10.0.0.2",
        "64:ff9b:1:a00:0:200::",
        "2002:a00:2::1",
        "2001:0:cb00:7101::f5ff:fffd",
        "2603:c020:0:1::5efe:10.0.0.2",
        "2001:db8::a9fe:a9fe",
    ] {
        assert!(request(&json!({ "target": { "address": address } })).is_ok(), "{address}");
    }
}
