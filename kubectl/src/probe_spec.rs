//! The NetworkTest that a command line describes.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use api::{NetworkTest, TargetService, TestTarget};
use serde_json::{Value, json};

use crate::args::nettest::NetTestArgs;

/// The deadline of the run itself, in seconds.
const DEADLINE: u16 = 120;
/// If the command is killed: a controller deletes the finished test after so many seconds.
const TTL: u32 = 300;

/// A NetworkTest of one pair.
pub(crate) fn object(args: &NetTestArgs) -> anyhow::Result<NetworkTest> {
    let service = serde_json::from_value::<TargetService>(json!(args.to)).ok();
    let target = match (service, args.to.parse::<IpAddr>()) {
        (Some(TargetService::Peers), _) => bail!("peers is not a single target"),
        (Some(service), _) => TestTarget { service: Some(service), ..TestTarget::default() },
        // A Node of OKE is named by its address; the controller knows others of it, too.
        (None, Ok(address)) => TestTarget { address: Some(address), ..TestTarget::default() },
        (None, _) if args.is_url() => TestTarget { url: Some(args.to.clone()), ..TestTarget::default() },
        (None, _) if args.external && !args.to.contains('/') => {
            TestTarget { host: Some(args.to.clone()), ..TestTarget::default() }
        }
        (None, _) => serde_json::from_value(at_node(&args.to)).context("reading the target")?,
    };
    let probe = match (args.port, service) {
        (_, Some(_)) if args.throughput.is_some() => bail!("throughput is measured between Nodes"),
        (port, None) if args.throughput.is_some() => {
            json!({ "type": "Throughput", "megabitsPerSecond": args.throughput, "port": port })
        }
        _ if args.is_url() && (args.port.is_some() || args.mtu) => bail!("a URL has a port of its own, and no MTU"),
        (Some(port), _) => json!({ "type": if args.udp { "UDP" } else { "TCP" }, "port": port }),
        (None, _) if args.is_url() => json!({ "type": "HTTPS" }),
        (None, Some(TargetService::Imds)) => json!({ "type": "HTTP" }),
        (None, Some(TargetService::Dns)) => json!({ "type": "DNS" }),
        (None, Some(TargetService::ApiServer | TargetService::OciServices)) => json!({ "type": "TCP", "port": 443 }),
        (None, _) if args.mtu => json!({ "type": "PathMTU" }),
        (None, _) => json!({ "type": "ICMP" }),
    };
    described(&json!([at_node(&args.from)]), &json!([target]), &probe, args.external)
}

/// A NetworkTest that is deleted with the command.
pub(crate) fn described(
    sources: &Value,
    targets: &Value,
    probe: &Value,
    external: bool,
) -> anyhow::Result<NetworkTest> {
    let spec = json!({
        "sources": sources, "targets": targets, "probes": [probe],
        "externalTargets": external, "deadlineSeconds": DEADLINE, "ttlSecondsAfterFinished": TTL,
    });
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NetworkTest",
        "metadata": { "generateName": "kubectl-" }, "spec": spec });
    serde_json::from_value(object).context("describing a NetworkTest")
}

/// The target that NODE, or NODE/ADDRESS, names.
pub(crate) fn at_node(text: &str) -> Value {
    match text.split_once('/') {
        Some((node, address)) => json!({ "node": node, "address": address }),
        None => json!({ "node": text }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn spec(words: &[&str]) -> serde_json::Value {
        let words = ["kubectl-oke_node", "nettest"].iter().chain(words);
        let Command::Nettest(args) = Args::try_parse_from(words).unwrap().command else { panic!("another command") };
        let spec = object(&args).unwrap().spec;
        json!({ "source": spec.sources, "target": spec.targets, "probe": spec.probes })
    }

    #[test]
    fn words_become_a_target_and_a_probe() {
        for (words, target, probe) in [
            (&["a", "10.0.20.3"][..], json!({ "address": "10.0.20.3" }), json!({ "type": "ICMP" })),
            (&["a", "b/::1:2"], json!({ "node": "b", "address": "::1:2" }), json!({ "type": "ICMP" })),
            (&["a", "b", "--port", "443"], json!({ "node": "b" }), json!({ "type": "TCP", "port": 443 })),
            (&["a", "b", "--port", "53", "--udp"], json!({ "node": "b" }), json!({ "type": "UDP", "port": 53 })),
            (&["a", "b", "--mtu"], json!({ "node": "b" }), json!({ "type": "PathMTU" })),
            (
                &["a", "b", "--throughput", "500"],
                json!({ "node": "b" }),
                json!({ "type": "Throughput", "megabitsPerSecond": 500 }),
            ),
            (&["a", "imds"], json!({ "service": "imds" }), json!({ "type": "HTTP" })),
            (&["a", "dns"], json!({ "service": "dns" }), json!({ "type": "DNS" })),
            (&["a", "https://b.org/c", "--external"], json!({ "url": "https://b.org/c" }), json!({ "type": "HTTPS" })),
            (&["a", "1.2.3.4", "--external"], json!({ "address": "1.2.3.4" }), json!({ "type": "ICMP" })),
            (
                &["a", "b.org", "--external", "--port", "443"],
                json!({ "host": "b.org" }),
                json!({ "type": "TCP", "port": 443 }),
            ),
        ] {
            let source = [json!({ "node": "a" })];
            assert_eq!(spec(words), json!({ "source": source, "target": [target], "probe": [probe] }), "{words:?}");
        }
        assert_eq!(spec(&["a/10.0.11.2", "b"])["source"], json!([{ "node": "a", "address": "10.0.11.2" }]));
    }
}
