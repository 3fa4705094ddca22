//! The command line as typed, and the list of all settings: each option with a variable is also a key of the environment and
//! of the configuration file (see [`resident::config`]).

mod operations;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use ipnetwork::IpNetwork;
use oci::{Endpoint, MetadataUrl, Rates, RealmDomain, RegionName};
use resident::args::{ConfigArgs, Output, ResidentOptions, Toggle};
use resident::command_line::CONFIG_FILE;
use resident::config::keys::Keys;
use vcn::Ocid;

use crate::fleet::host_events::Compartments;
use operations::OperationOptions;

/// Attaches VNICs to instances through the OCI API as VnicAttachments request them, and keeps them in sync. Two replicas
/// run in a cluster; the leader works.
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-node-controller", version, after_help = AFTER)]
pub(crate) struct Args {
    /// The command; `run` by default
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The configuration file: lines of KEY=value with the variables below as keys. A file named here must exist
    #[arg(long, global = true, env = CONFIG_FILE, default_value = DEFAULT_CONFIG)]
    #[arg(value_name = "FILE")]
    pub config_file: PathBuf,
    /// All settings.
    #[command(flatten)]
    pub options: Options,
}

/// Where the configuration file is, if there is one.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/oke-node-controller/controller.conf";

const AFTER: &str = "\
Flags outrank the environment, the environment outranks the file. `oke-node-controller config --explain` describes each
key. The API server is found as by kubectl: KUBECONFIG, ~/.kube/config, or the pod's service account.

Exit status: 0 stopped by a signal; 1 failed, or the Lease was lost; 2 wrong command line or configuration.";

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Command {
    /// Run: wait for the Lease, then work
    Run,
    /// Print the settings and their sources
    #[command(after_help = "\
Exit status: 0 valid, 2 invalid.

Examples:
  oke-node-controller config --explain                     every key: default, unit, meaning
  oke-node-controller config --check controller.conf       all errors of a file, before a rollout")]
    Config(ConfigArgs),
    /// Print what would be done now, and change nothing
    #[command(after_help = "\
Examples:
  oke-node-controller plan                                 everything; some seconds per hundred instances
  oke-node-controller plan --node 10.0.0.2                 in OCI, only this Node's instance")]
    Plan(PlanArgs),
}

/// What to plan, and the output format.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct PlanArgs {
    /// Query OCI about this Node's instance only; may be repeated
    #[arg(long, value_name = "NAME")]
    pub node: Vec<String>,
    /// Query OCI about this instance only; may be repeated
    #[arg(long, value_name = "OCID")]
    pub instance: Vec<Ocid>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// How the controller logs in to the OCI API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Principal {
    /// The service account of its pod (enhanced clusters).
    WorkloadIdentity,
    /// The instance that it runs on.
    #[value(name = "instance-principal")]
    Instance,
    /// A user's key.
    ApiKey,
}

/// What NetworkTests may probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestTargets {
    /// Nodes, pods, and the services of nodes.
    #[default]
    Cluster,
    /// Addresses and names outside the cluster, too.
    Any,
    /// Nothing: NetworkTests are refused.
    None,
}

/// All settings.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "controller-options")]
pub(crate) struct Options {
    /// Options of every resident program.
    #[command(flatten)]
    pub resident: ResidentOptions,
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, global = true, env = "LISTEN", default_value = "127.0.0.1:9809", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The Lease.
    #[command(flatten)]
    pub lease: LeaseSettings,
    /// The cluster's name in the tags of VNICs; by default the uid of the namespace kube-system. After a change all VNICs are
    /// tagged again, and orphaned VNICs with the old name are no longer reported
    #[arg(long, global = true, env = "CLUSTER_ID", value_parser = name(MAX_CLUSTER_ID), value_name = "NAME")]
    pub cluster_id: Option<String>,
    /// The OCI API.
    #[command(flatten)]
    pub oci: OciSettings,
    /// The most instances that are handled at once
    #[arg(long, global = true, env = "WORKERS", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512), value_name = "NUMBER")]
    pub workers: u16,
    /// Intervals of reconciles and retries.
    #[command(flatten)]
    pub pace: Pace,
    /// The longest time between two requests to a node's agent, in seconds. Up to 1,250 nodes each agent is queried every 30 s; the
    /// interval grows by 30 s for each further 1,250
    #[arg(long = "agent-poll-seconds", global = true, env = "AGENT_POLL_SECONDS", default_value = "240", value_parser = seconds(10.0..=3600.0), value_name = "SECONDS")]
    pub agent_poll: Duration,
    /// Seconds without an answer of a node's agent after which the conditions of the Node are Unknown. The agent is queried
    /// at least once in four fifths of this time
    #[arg(long = "agent-silent-seconds", global = true, env = "AGENT_SILENT_SECONDS", default_value = "300", value_parser = seconds(30.0..=3600.0), value_name = "SECONDS")]
    pub agent_silent: Duration,
    /// Rules of health signals for the agents of all nodes, as JSON, which override the shipped rules; an agent's own HEALTH_RULES
    /// override these. The file need not exist
    #[arg(
        long,
        global = true,
        env = "HEALTH_RULES",
        default_value = "/etc/oke-node-controller/health-rules.json",
        value_name = "FILE"
    )]
    pub health_rules: PathBuf,
    /// Whether the states of the Oracle Cloud Agent's plugins are read from the OCI API, on nodes with an RDMA network. This takes a
    /// tenth of the requests at most, and a permission
    #[arg(long, global = true, env = "PLUGIN_STATES", value_enum, default_value = "on", value_name = "WHAT")]
    pub plugin_states: Toggle,
    /// The tenancy whose bare-metal hosts are listed every 15 minutes, for the signal `host_fault`; it needs a permission [default: no
    /// hosts are listed]
    #[arg(long, global = true, env = "HOST_HEALTH_TENANCY", value_name = "OCID")]
    pub host_health_tenancy: Option<Ocid>,
    /// The compartments, at most 16 with commas between them, whose instances' maintenance is listed every 15 minutes, for the signal
    /// `maintenance_scheduled`; it needs a permission [default: no maintenance is listed]
    #[arg(long, global = true, env = "MAINTENANCE_COMPARTMENTS", value_name = "OCIDS")]
    pub maintenance_compartments: Option<Compartments>,
    /// The key of the taint with which OKE marks a node that it repairs. Of such a node the fleet shows `OKE repairs this node`, and
    /// none of Oracle's reports
    #[arg(long, global = true, env = "OKE_REPAIR_TAINT", value_parser = taint_key, value_name = "KEY")]
    pub oke_repair_taint: Option<String>,
    /// Whether NodeRepairConfigs of OKE are read every 15 minutes: of a node that one selects, too, the fleet shows `OKE repairs this
    /// node`, and no NodeTask reboots it
    #[arg(long, global = true, env = "OKE_REPAIR_CONFIGS", value_enum, default_value = "off", value_name = "WHAT")]
    pub oke_repair_configs: Toggle,
    /// Where the fleet is served to `kubectl oke-node`: an address of this host only
    #[arg(long, global = true, env = "VIEW_LISTEN", default_value = "127.0.0.1:9811", value_parser = loopback, value_name = "ADDRESS")]
    pub view_listen: SocketAddr,
    /// What NetworkTests may probe: nodes, pods and the services of nodes; any address and name outside the cluster, too; or none
    #[arg(
        long,
        global = true,
        env = "NETWORK_TEST_TARGETS",
        value_enum,
        default_value = "cluster",
        value_name = "WHAT"
    )]
    pub network_test_targets: TestTargets,
    /// What changes nodes.
    #[command(flatten)]
    pub operations: OperationOptions,
    /// Networks of the cluster's Services, separated by commas: NetworkTests may probe addresses in them
    #[arg(
        long,
        global = true,
        env = "SERVICE_NETWORKS",
        default_value = "10.96.0.0/16",
        value_parser = networks,
        value_name = "CIDR,..."
    )]
    pub service_networks: Networks,
}

/// Networks, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Networks(pub Vec<IpNetwork>);

/// Which Lease, and its duration.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct LeaseSettings {
    /// The namespace of the Lease: the pod's own, from the downward API
    #[arg(long = "pod-namespace", global = true, env = "POD_NAMESPACE", default_value = "oke-node-manager", value_parser = name(MAX_NAME), value_name = "NAME")]
    pub namespace: String,
    /// The name of this process in the Lease and in Events: the pod's name, from the downward API
    /// [default: host name and a number]
    #[arg(long = "pod-name", global = true, env = "POD_NAME", value_parser = name(MAX_NAME), value_name = "NAME")]
    pub identity: Option<String>,
    /// The time that the Lease stays valid without renewal, in whole seconds. For that long there is no leader after one was
    /// killed
    #[arg(long = "lease-seconds", global = true, env = "LEASE_SECONDS", default_value_t = 15, value_parser = lease_seconds, value_name = "SECONDS")]
    pub seconds: u16,
}

/// How the OCI API is reached.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct OciSettings {
    /// How the controller logs in to the OCI API
    #[arg(
        long = "oci-principal",
        global = true,
        env = "OCI_PRINCIPAL",
        value_enum,
        default_value = "workload-identity",
        value_name = "WHO"
    )]
    pub principal: Principal,
    /// With api-key: a file in the format of ~/.oci/config
    #[arg(long = "oci-config-file", global = true, env = "OCI_CONFIG_FILE", default_value = "~/.oci/config", value_parser = home, value_name = "FILE")]
    pub key_file: PathBuf,
    /// With api-key: the profile of that file
    #[arg(long = "oci-profile", global = true, env = "OCI_PROFILE", default_value = "DEFAULT", value_name = "NAME")]
    pub profile: String,
    /// The region, as a name (eu-frankfurt-1) or key (fra); by default that of the API key's file, or of the instance
    #[arg(long = "oci-region", global = true, env = "OCI_REGION", value_parser = region, value_name = "NAME")]
    pub region: Option<RegionName>,
    /// The domain of the realm (oraclecloud8.com); by default that of the region if it is known, else of the instance
    #[arg(long = "oci-realm-domain", global = true, env = "OCI_REALM_DOMAIN", value_parser = realm, value_name = "NAME")]
    pub realm: Option<RealmDomain>,
    /// The endpoint of the core services, if it does not follow from the region
    #[arg(long = "oci-endpoint", global = true, env = "OCI_ENDPOINT", value_parser = endpoint, value_name = "URL")]
    pub endpoint: Option<Endpoint>,
    /// The endpoint of the federation service, if it does not follow from the region
    #[arg(long = "oci-auth-endpoint", global = true, env = "OCI_AUTH_ENDPOINT", value_parser = endpoint, value_name = "URL")]
    pub auth_endpoint: Option<Endpoint>,
    /// A PEM bundle of the certificate authorities trusted for OCI; by default the public ones
    #[arg(long = "oci-ca-file", global = true, env = "OCI_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The instance metadata service, with its version: the source of region and instance principal's certificate
    #[arg(long = "oci-metadata-base-url", global = true, env = "OCI_METADATA_BASE_URL", default_value = oci::METADATA_URL, value_parser = metadata_url, value_name = "URL")]
    pub metadata_url: MetadataUrl,
    /// The most requests per second to the OCI API; the controller lowers its rate itself when OCI throttles it
    #[arg(long = "oci-requests-per-second", global = true, env = "OCI_REQUESTS_PER_SECOND", default_value = "20", value_parser = number(LEAST_RATE..=1000.0), value_name = "NUMBER")]
    pub rate: f64,
}

/// Intervals of reconciles and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Pace {
    /// Seconds between two reconciles of an idle instance. For that long, a VNIC detached by another program can go unnoticed.
    /// If these would take more than half of the requests, they are less frequent, and whole compartments are listed instead
    #[arg(long = "resync-seconds", global = true, env = "RESYNC_SECONDS", default_value = "300", value_parser = seconds(1.0..=86_400.0), value_name = "SECONDS")]
    pub resync: Duration,
    /// Seconds between two polls of an instance while a VNIC is being attached or detached. Polls are less frequent if they
    /// would take more than half of the requests
    #[arg(long = "poll-seconds", global = true, env = "POLL_SECONDS", default_value = "3", value_parser = seconds(0.05..=60.0), value_name = "SECONDS")]
    pub poll: Duration,
    /// The longest backoff between two retries, in seconds. It is longer if retries would take more than a third of the requests
    #[arg(long = "retry-most-seconds", global = true, env = "RETRY_MOST_SECONDS", default_value = "120", value_parser = seconds(1.0..=3600.0), value_name = "SECONDS")]
    pub retry_most: Duration,
}

/// The fewest requests per second: so that there is always an answer to adapt to.
const LEAST_RATE: f64 = 0.5;
/// A tag's value in OCI has up to 256 characters; uids have 36.
const MAX_CLUSTER_ID: usize = 128;
const MAX_NAME: usize = 253;

impl OciSettings {
    /// Bounds of the budget.
    pub(crate) fn rates(&self) -> Rates {
        Rates { most: self.rate, least: LEAST_RATE, burst: (self.rate / 4.0).max(1.0) }
    }
}

fn name(most: usize) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_valid = (1..=most).contains(&text.len()) && text.chars().all(fits);
        is_valid
            .then(|| text.to_owned())
            .ok_or_else(|| format!("expected 1 to {most} letters, digits, '-', '.' or '_'"))
    }
}

/// A name, with a domain and a slash before it or not.
fn taint_key(text: &str) -> Result<String, String> {
    let parts = text.split_once('/').map_or_else(|| vec![text], |(domain, name)| vec![domain, name]);
    parts.into_iter().try_for_each(|part| name(MAX_NAME)(part).map(|_| ()))?;
    Ok(text.to_owned())
}

/// Whole seconds, as in Kubernetes. One that is shorter would expire before its renewal; one that is longer would last too long
/// after a crash.
fn lease_seconds(text: &str) -> Result<u16, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (1..=300).contains(seconds));
    seconds.ok_or("expected a whole number of seconds, 1 to 300")
}

fn seconds(bounds: RangeInclusive<f64>) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    let number = number(bounds);
    move |text| number(text).map(Duration::from_secs_f64)
}

fn number(bounds: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| format!("expected a number between {} and {}", bounds.start(), bounds.end()))
    }
}

fn loopback(text: &str) -> Result<SocketAddr, &'static str> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    address.ok_or("expected an address of loopback with a port (127.0.0.1:9811)")
}

fn networks(text: &str) -> Result<Networks, &'static str> {
    let networks: Result<Vec<IpNetwork>, _> = text.split(',').map(|network| network.trim().parse()).collect();
    networks.map(Networks).map_err(|_| "expected networks, separated by commas (10.96.0.0/16,fd00:96::/112)")
}

fn region(text: &str) -> Result<RegionName, &'static str> {
    RegionName::new(text).map_err(|_| "expected a region's name (eu-frankfurt-1) or a known key (fra)")
}

fn realm(text: &str) -> Result<RealmDomain, &'static str> {
    RealmDomain::new(text).map_err(|_| "expected a domain (oraclecloud8.com)")
}

fn endpoint(text: &str) -> Result<Endpoint, &'static str> {
    text.parse().map_err(|_| "expected the form https://host")
}

fn metadata_url(text: &str) -> Result<MetadataUrl, String> {
    text.parse().map_err(|_| format!("expected the form {}", oci::METADATA_URL))
}

fn home(text: &str) -> Result<PathBuf, Infallible> {
    let path = PathBuf::from(text);
    Ok(match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(below), Some(home)) => PathBuf::from(home).join(below),
        _ => path,
    })
}

/// Every key.
pub(crate) fn keys() -> Keys {
    Keys::of::<Options>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest may be one release ahead of its image or behind it.
    #[test]
    fn no_key_resembles_a_key_of_an_earlier_release() {
        assert_eq!(keys().alike(), [("", ""); 0]);
    }

    #[test]
    fn invalid_value_error_names_its_option() {
        for (option, value) in [
            ("--lease-seconds", "0"),
            ("--lease-seconds", "1.9"),
            ("--resync-seconds", "NaN"),
            ("--poll-seconds", "61"),
            ("--agent-poll-seconds", "9"),
            ("--oci-requests-per-second", "0"),
            ("--workers", "0"),
            ("--view-listen", "0.0.0.0:9811"),
            ("--cluster-id", "a b"),
            ("--oci-region", "frx"),
            ("--oci-endpoint", "ftp://x"),
            ("--oci-endpoint", "https://x/20160918"),
            ("--oci-auth-endpoint", "auth.example"),
            ("--oci-metadata-base-url", "169.254.169.254/opc/v2"),
            ("--oci-realm-domain", "https://oraclecloud8.com"),
        ] {
            let message = Args::try_parse_from(["oke-node-controller", option, value]).unwrap_err().to_string();
            assert!(message.contains(option) && message.contains(value), "{message}");
        }
    }
}
