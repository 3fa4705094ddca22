//! From the agent's own state to the facts that collectors use.

use std::net::{IpAddr, SocketAddr};

use health::Facts;
use health::facts::{ActiveCondition, InstalledPlugin, NetworkFacts, PoolFacts, Topic, VnicLink};
use health::summary::poll::NodeReport;
use vcn::Purpose;

use crate::args::HostNetworking;
use crate::decide::usage::{PoolUsage, Usage};
use crate::facts::condition::Reason;
use crate::facts::reconcile_report::{ReconcileReport, VnicState};
use crate::lifecycle::agent::Agent;

/// What is known now.
pub(super) fn gather(agent: &Agent, node_report: NodeReport) -> Facts {
    let Agent { settings, boot, metrics, facts, .. } = agent;
    let (known, report) = (facts.borrow(), agent.report());
    let install = report.as_ref().and_then(|report| Some(report.pod_network.as_ref()?.install));
    let plugin = install.filter(|install| *install).map(|_| "vcn-native");
    let attach_plugin =
        install.filter(|install| settings.installer.places_vnic_attach(*install)).map(|_| "vnic-attach");
    let plugins = plugin.into_iter().chain(attach_plugin).map(|name| InstalledPlugin {
        name,
        shipped: settings.installer.source_dir.join(name),
        installed: settings.installer.cni_bin_dir.join(name),
    });
    Facts {
        shape: known.instance.value.as_ref().map(|instance| instance.shape.clone()),
        node_name: settings.node_name.clone(),
        node_ip: settings.resident.node_ip,
        primary_addresses: known
            .vnics
            .value
            .as_ref()
            .and_then(|vnics| vnics.first())
            .map_or_else(Vec::new, |primary| {
                primary.addressing.iter().flat_map(|(_, addressing)| addressing.listed()).collect()
            }),
        links: report.as_ref().map_or_else(Vec::new, |report| links(report, settings.host_networking)),
        paths: vec![settings.state_dir.clone(), settings.data_dir.clone(), settings.host_root.join("usr")],
        state_dir: Some(settings.state_dir.clone()),
        metadata: metadata(&settings.metadata_url),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plugins: plugins.collect(),
        allocatable_memory: node_report.allocatable_memory,
        allocatable_gpus: node_report.allocatable_gpus,
        runtime: node_report.runtime,
        kubelet_port: settings.kubelet_healthz_port,
        dcgm: settings.dcgm_metrics.exporter(settings.resident.node_ip),
        network: report.map(|report| NetworkFacts {
            conditions: conditions(&report),
            repairs: metrics.repairs(),
            pools: Usage::counted(&settings.state_dir, boot).map(pools).unwrap_or_default(),
        }),
    }
}

/// The pools that serve all pods, and those of shared VNICs.
fn pools(usage: Usage) -> Vec<PoolFacts> {
    let is_for_several = |pool: &PoolUsage| pool.purpose == Purpose::Pods || pool.shared.is_some();
    let pools = usage.pools.into_iter().filter(is_for_several).map(|pool| PoolFacts {
        link: pool.link.to_string(),
        shared: pool.shared,
        family: pool.family.to_string(),
        total: pool.total,
        in_use: pool.in_use,
        cooling: pool.cooling,
        free: pool.free,
    });
    pools.collect()
}

fn links(report: &ReconcileReport, networking: HostNetworking) -> Vec<VnicLink> {
    let link = |vnic: &VnicState| {
        let is_ours = vnic.unmanaged.is_none() && networking == HostNetworking::Configure;
        let name = vnic.link.as_ref()?.to_string();
        Some(VnicLink { name, primary: vnic.primary, is_kept_up: vnic.primary || is_ours })
    };
    let mut links: Vec<VnicLink> = report.vnics.iter().filter_map(link).collect();
    links.sort_by_key(|link| !link.primary);
    links
}

fn conditions(report: &ReconcileReport) -> Vec<ActiveCondition> {
    let of = |condition: &crate::facts::condition::Condition| {
        Some(ActiveCondition { topic: topic(condition.reason)?, message: condition.message.clone() })
    };
    report.conditions.iter().filter_map(of).collect()
}

fn topic(reason: Reason) -> Option<Topic> {
    match reason {
        Reason::ForwardingRejected => Some(Topic::Forwarding),
        Reason::NetworkManagerInterferes | Reason::ConflictingConfiguration | Reason::RepairsUndone => {
            Some(Topic::NetworkManager)
        }
        Reason::PrimaryLinkMissing
        | Reason::LinkMissing
        | Reason::VnicNotListed
        | Reason::VnicFamilyNotListed
        | Reason::VnicUnreadable
        | Reason::RouterUnknown
        | Reason::RouteRefused
        | Reason::HostNetworkFailed
        | Reason::PodTableShared
        | Reason::RoutingOverridden
        | Reason::MainTableUnreachable
        | Reason::KernelLacksNft
        | Reason::NftFailed => Some(Topic::Vnic),
        _ => None,
    }
}

/// The address and the path of a metadata service; none for a URL with a name instead of an address, or with TLS.
fn metadata(url: &str) -> Option<(SocketAddr, String)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let without_port = || Some(SocketAddr::new(bare.parse::<IpAddr>().ok()?, 80));
    let address = host.parse().ok().or_else(without_port)?;
    Some((address, format!("/{}/instance/", path.trim_end_matches('/'))))
}

#[cfg(test)]
mod tests {
    use ipam::{Allocations, BootTime, Pools};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pools_of_all_pods_and_of_shared_vnics_are_facts() {
        let vnic = |name: &str, attach: Value| {
            json!({
                "vnicId": format!("ocid1.vnic.oc1.iad.{name}"), "link": name, "mac": "02:00:17:00:00:01", "mtu": 9000,
                "table": 101, "purpose": if attach.is_null() { "pods" } else { "attach" }, "attach": attach,
                "ipv4": { "router": "10.0.33.1", "reserved": ["10.0.33.4"], "addresses": ["10.0.33.4/30"] },
            })
        };
        let pools: Pools = serde_json::from_value(json!({ "version": 1, "bootId": "a", "vnics": [
            vnic("ens5", Value::Null),
            vnic("ens6", json!({ "name": "storage", "mode": "Shared" })),
            vnic("ens7", json!({ "name": "leaving", "mode": "Shared", "isLeaving": true })),
            vnic("ens8", json!({ "name": "whole", "mode": "Exclusive" })),
        ]}))
        .unwrap();
        let usage = Usage::of(&pools, &Allocations::none(pools.boot_id.clone()), BootTime(0));
        let found: Vec<(String, Option<String>, u64)> =
            super::pools(usage).into_iter().map(|pool| (pool.link, pool.shared, pool.free)).collect();
        assert_eq!(found, [("ens5".to_owned(), None, 3), ("ens6".to_owned(), Some("storage".to_owned()), 3)]);
    }

    #[test]
    fn link_that_the_agent_does_not_configure_may_be_down() {
        let vnic = |name: &str, unmanaged: Value| {
            json!({ "id": format!("ocid1.vnic.oc1.iad.{name}"), "mac": "02:00:17:00:00:01", "primary": name == "ens3",
                "link": name, "addresses": [], "unmanaged": unmanaged })
        };
        let vnics = [vnic("ens5", Value::Null), vnic("ens6", json!("for-one-pod")), vnic("ens3", Value::Null)];
        let report = json!({ "cause": "timer", "unixMillis": 1, "micros": 1, "changes": [], "conditions": [], "vnics": vnics,
            "usable": true });
        let report: ReconcileReport = serde_json::from_value(report).unwrap();
        let kept_up = |networking| {
            let links = links(&report, networking).into_iter().filter(|link| link.is_kept_up);
            links.map(|link| link.name).collect::<Vec<_>>()
        };
        assert_eq!(kept_up(HostNetworking::Configure), ["ens3", "ens5"]);
        assert_eq!(kept_up(HostNetworking::Off), ["ens3"]);
    }

    #[test]
    fn metadata_url_becomes_address_and_path() {
        let read = |url| metadata(url).map(|(address, path)| format!("{address} {path}"));
        for (url, expected) in [
            (imds::DEFAULT_BASE_URL, Some("169.254.169.254:80 /opc/v2/instance/")),
            ("http://[fd00:c1::a9fe:a9fe]/opc/v2/", Some("[fd00:c1::a9fe:a9fe]:80 /opc/v2/instance/")),
            ("http://127.0.0.1:8080/opc/v2", Some("127.0.0.1:8080 /opc/v2/instance/")),
            ("http://metadata/opc/v2", None),
        ] {
            assert_eq!(read(url).as_deref(), expected, "{url}");
        }
    }
}
