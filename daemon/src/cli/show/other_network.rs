//! A node whose pods use another program's network, which the agent shows but cannot judge.

use command::page::Page;
use installer::{AddressUse, ForeignNetwork, foreign_network};
use resident::logging::chain;
use serde::Serialize;

use crate::report::status::Status;
use crate::settings::Settings;

/// What the node shows of the other network.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtherNetwork {
    /// Why pods do not use our network.
    reason: String,
    /// Where the runtime finds configurations, and where binaries.
    configuration_directory: String,
    binary_directory: String,
    /// Where files with addresses are looked for.
    address_directory: String,
    /// Absent if there is no configuration of another network.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<ForeignNetwork>,
    /// Why the configurations cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl OtherNetwork {
    /// What this node shows, if its pods use another network.
    pub(super) fn of(status: &Status, settings: &Settings) -> Option<Self> {
        let pods = status.report.as_ref()?.pod_network.as_ref().filter(|pods| !pods.install)?;
        let (network, error) = match foreign_network(&settings.installer) {
            Ok(network) => (network, None),
            Err(error) => (None, Some(chain(&error))),
        };
        if network.is_none() && error.is_none() {
            // Without any configuration no pod starts: a condition says so.
            return None;
        }
        let directories = &settings.installer;
        Some(Self {
            reason: pods.reason.clone(),
            configuration_directory: directories.cni_conf_dir.display().to_string(),
            binary_directory: directories.cni_bin_dir.display().to_string(),
            address_directory: directories.cni_cache_dir.display().to_string(),
            network,
            error,
        })
    }
}

pub(super) fn text(page: &mut Page, other: &OtherNetwork) {
    let named = other.network.as_ref().and_then(|it| it.network.as_deref()).unwrap_or("another program's");
    page.line(format_args!(
        "Not judged: pods of this node use the network {named}, which this agent does not manage. It cannot tell whether new pods \
         start here."
    ));
    page.line(format_args!("   Decision       {}", other.reason));
    let directory = &other.configuration_directory;
    match (&other.network, &other.error) {
        (Some(network), _) => seen(page, network, other),
        (None, error) => {
            page.line(format_args!(
                "   Configuration  unreadable in {directory}: {}",
                error.as_deref().unwrap_or_default()
            ));
        }
    }
    page.line("   Next: Read the log of that network's own DaemonSet, and the Events of a pod that does not start.");
}

fn seen(page: &mut Page, network: &ForeignNetwork, other: &OtherNetwork) {
    let fault = network.fault.as_ref().map(|why| format!(", which no pod can use: {why}")).unwrap_or_default();
    page.line(format_args!("   Configuration  {}/{}{fault}", other.configuration_directory, network.file));
    let (installed, missing): (Vec<_>, Vec<_>) = network.plugins.iter().partition(|plugin| plugin.installed);
    let names = |plugins: Vec<&installer::ForeignPlugin>| {
        plugins.into_iter().map(|plugin| plugin.kind.as_str()).collect::<Vec<_>>().join(", ")
    };
    let is_complete = missing.is_empty();
    let [installed, missing] = [names(installed), names(missing)];
    let directory = &other.binary_directory;
    match (installed.is_empty(), is_complete) {
        (true, true) => page.line("   Binaries       the configuration names none"),
        (_, true) => page.line(format_args!("   Binaries       {installed} in {directory}")),
        (true, false) => page.line(format_args!("   Binaries       missing in {directory}: {missing}")),
        (false, false) => {
            page.line(format_args!("   Binaries       missing in {directory}: {missing}; there: {installed}"))
        }
    }
    match &network.addresses {
        Some(AddressUse { directory, held, free }) => {
            let free = free.map(|free| format!(", {free} free IPv4 addresses")).unwrap_or_default();
            page.line(format_args!("   Addresses      {held} in use{free} ({})", directory.display()));
        }
        None => page.line(format_args!(
            "   Addresses      no files of host-local below {}: not mounted here, or another IPAM plugin",
            other.address_directory
        )),
    }
}
