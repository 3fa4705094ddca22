//! The command line as typed, and the list of all settings: each option with a variable is also a key of the environment and
//! of the configuration file (see [`resident::config`]).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use resident::args::{ConfigArgs, Output, ResidentOptions, Toggle};
use resident::command_line::CONFIG_FILE;
use resident::config::keys::Keys;
use vcn::Ocid;

/// Attaches VNICs to instances through the OCI API as VnicAttachments request them, and keeps them in sync. Two replicas
/// run in a cluster; the leader works.
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-node-controller", version, after_help = AFTER)]
pub struct Args {
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
pub const DEFAULT_CONFIG: &str = "/etc/oke-node-controller/controller.conf";

const AFTER: &str = "\
Flags outrank the environment, the environment outranks the file. `oke-node-controller config --explain` describes each
key. The API server is found as by kubectl: KUBECONFIG, ~/.kube/config, or the pod's service account.

Exit status: 0 stopped by a signal; 1 failed, or the Lease was lost; 2 wrong command line or configuration.";

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
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
pub struct PlanArgs {
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
pub enum Principal {
    /// The service account of its pod (enhanced clusters).
    WorkloadIdentity,
    /// The instance that it runs on.
    InstancePrincipal,
    /// A user's key.
    ApiKey,
}

/// What NetworkTests may probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TestTargets {
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
pub struct Options {
    /// Options of every resident program.
    #[command(flatten)]
    pub resident: ResidentOptions,
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, global = true, env = "LISTEN", default_value = "127.0.0.1:9809", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The namespace of the Lease: the pod's own, from the downward API
    #[arg(long, global = true, env = "POD_NAMESPACE", default_value = "oke-node-manager", value_name = "NAME")]
    pub pod_namespace: String,
    /// The name of this process in the Lease and in Events: the pod's name, from the downward API
    /// [default: host name and a number]
    #[arg(long, global = true, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// The time that the Lease stays valid without renewal, in whole seconds. For that long there is no leader after one was
    /// killed
    #[arg(long, global = true, env = "LEASE_SECONDS", default_value_t = 15, value_parser = whole_seconds, value_name = "SECONDS")]
    pub lease_seconds: u16,
    /// The cluster's name in the tags of VNICs; by default the uid of the namespace kube-system. After a change all VNICs are
    /// tagged again, and orphaned VNICs with the old name are no longer reported
    #[arg(long, global = true, env = "CLUSTER_ID", value_name = "NAME")]
    pub cluster_id: Option<String>,
    /// How the controller logs in to the OCI API
    #[arg(
        long,
        global = true,
        env = "OCI_PRINCIPAL",
        value_enum,
        default_value = "workload-identity",
        value_name = "WHO"
    )]
    pub oci_principal: Principal,
    /// With api-key: a file in the format of ~/.oci/config
    #[arg(long, global = true, env = "OCI_CONFIG_FILE", default_value = "~/.oci/config", value_name = "FILE")]
    pub oci_config_file: PathBuf,
    /// With api-key: the profile of that file
    #[arg(long, global = true, env = "OCI_PROFILE", default_value = "DEFAULT", value_name = "NAME")]
    pub oci_profile: String,
    /// The region, as a name (eu-frankfurt-1) or key (fra); by default that of the API key's file, or of the instance
    #[arg(long, global = true, env = "OCI_REGION", value_name = "NAME")]
    pub oci_region: Option<String>,
    /// The domain of the realm (oraclecloud8.com); by default that of the region if it is known, else of the instance
    #[arg(long, global = true, env = "OCI_REALM_DOMAIN", value_name = "NAME")]
    pub oci_realm_domain: Option<String>,
    /// The endpoint of the core services, if it does not follow from the region
    #[arg(long, global = true, env = "OCI_ENDPOINT", value_name = "URL")]
    pub oci_endpoint: Option<String>,
    /// The endpoint of the federation service, if it does not follow from the region
    #[arg(long, global = true, env = "OCI_AUTH_ENDPOINT", value_name = "URL")]
    pub oci_auth_endpoint: Option<String>,
    /// A PEM bundle of the certificate authorities trusted for OCI; by default the public ones
    #[arg(long, global = true, env = "OCI_CA_FILE", value_name = "FILE")]
    pub oci_ca_file: Option<PathBuf>,
    /// The instance metadata service, with its version: the source of region and instance principal's certificate
    #[arg(long, global = true, env = "OCI_METADATA_BASE_URL", default_value = oci::METADATA_URL, value_name = "URL")]
    pub oci_metadata_base_url: String,
    /// The most requests per second to the OCI API; the controller lowers its rate itself when OCI throttles it
    #[arg(long, global = true, env = "OCI_REQUESTS_PER_SECOND", default_value_t = 20.0, value_name = "NUMBER")]
    pub oci_requests_per_second: f64,
    /// The most instances that are handled at once
    #[arg(long, global = true, env = "WORKERS", default_value_t = 32, value_name = "NUMBER")]
    pub workers: u16,
    /// Seconds between two reconciles of an idle instance. For that long, a VNIC detached by another program can go unnoticed.
    /// If these would take more than half of the requests, they are less frequent, and whole compartments are listed instead
    #[arg(long, global = true, env = "RESYNC_SECONDS", default_value_t = 300.0, value_name = "SECONDS")]
    pub resync_seconds: f64,
    /// Seconds between two polls of an instance while a VNIC is being attached or detached. Polls are less frequent if they
    /// would take more than half of the requests
    #[arg(long, global = true, env = "POLL_SECONDS", default_value_t = 3.0, value_name = "SECONDS")]
    pub poll_seconds: f64,
    /// The longest backoff between two retries, in seconds. It is longer if retries would take more than a third of the requests
    #[arg(long, global = true, env = "RETRY_MOST_SECONDS", default_value_t = 120.0, value_name = "SECONDS")]
    pub retry_most_seconds: f64,
    /// Seconds in which each node's agent is asked once. A node whose agent has not answered for a quarter longer is Unknown
    #[arg(long, global = true, env = "AGENT_POLL_SECONDS", default_value_t = 240, value_parser = clap::value_parser!(u16).range(10..=3600), value_name = "SECONDS")]
    pub agent_poll_seconds: u16,
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
    /// Where the fleet is served to `kubectl oke-node`: an address of this host only
    #[arg(long, global = true, env = "VIEW_LISTEN", default_value = "127.0.0.1:9811", value_name = "ADDRESS")]
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
}

/// A Lease in Kubernetes has whole seconds only.
fn whole_seconds(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "expected a whole number of seconds")
}

/// Every key.
pub fn keys() -> Keys {
    Keys::of::<Options>()
}

#[cfg(test)]
mod tests {
    use super::keys;

    /// A manifest may be one release ahead of its image or behind it.
    #[test]
    fn no_key_resembles_a_key_of_an_earlier_release() {
        assert_eq!(keys().alike(), [("", ""); 0]);
    }
}
