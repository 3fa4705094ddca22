//! From the agent's own state to the facts that collectors use.

use std::net::{IpAddr, SocketAddr};

use health::Facts;
use health::facts::{ActiveCondition, InstalledPlugin, NetworkFacts, PoolFacts, Topic, VnicLink};
use vcn::Purpose;

use super::Sources;
use crate::decide::usage::Usage;
use crate::report::condition::Reason;
use crate::report::reconcile_report::ReconcileReport;

/// What is known now.
pub(super) fn gather(sources: &Sources) -> Facts {
    let Sources { settings, boot, metrics, facts, reports } = sources;
    let known = facts.borrow();
    let report = reports.borrow().as_ref().map(|completed| completed.report.clone());
    let pools = Usage::counted(&settings.state_dir, boot).map(|usage| usage.pools).unwrap_or_default();
    let pools = pools.into_iter().filter(|pool| pool.purpose == Purpose::Pods).map(|pool| PoolFacts {
        link: pool.link.to_string(),
        family: pool.family.to_string(),
        total: pool.total,
        in_use: pool.in_use,
        cooling: pool.cooling,
        free: pool.free,
    });
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
        node_ip: settings.node_ip,
        primary_addresses: known
            .vnics
            .value
            .as_ref()
            .and_then(|vnics| vnics.first())
            .map_or_else(Vec::new, |primary| {
                primary.addressing.iter().flat_map(|(_, addressing)| addressing.listed()).collect()
            }),
        links: report.as_ref().map_or_else(Vec::new, |report| links(report)),
        paths: vec![settings.state_dir.clone(), settings.data_dir.clone(), settings.host_root.join("usr")],
        metadata: metadata(&settings.metadata_url),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plugins: plugins.collect(),
        network: report.map(|report| NetworkFacts {
            conditions: conditions(&report),
            repairs: metrics.repairs(),
            pools: pools.collect(),
        }),
    }
}

fn links(report: &ReconcileReport) -> Vec<VnicLink> {
    let mut links: Vec<VnicLink> = report
        .vnics
        .iter()
        .filter_map(|vnic| Some(VnicLink { name: vnic.link.as_ref()?.to_string(), primary: vnic.primary }))
        .collect();
    links.sort_by_key(|link| !link.primary);
    links
}

fn conditions(report: &ReconcileReport) -> Vec<ActiveCondition> {
    let of = |condition: &crate::report::condition::Condition| {
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
        | Reason::HostNetworkFailed
        | Reason::PodTableShared
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
    use super::*;

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
