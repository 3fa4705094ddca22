//! The command line, as typed, and with it the list of all that can be set: every option that names a variable is a key of
//! the environment and of the configuration file, too (see [`resident::config`]).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use resident::args::{ConfigArgs, LogLevel, Output};
use resident::command_line::CONFIG_FILE;
use resident::config::keys::Keys;
use vcn::Ocid;

/// Runs in a cluster, two replicas of which one works: attaches VNICs to instances through the OCI API as VnicAttachments
/// ask for them, and keeps them as asked.
#[derive(Clone, Debug, Parser)]
#[command(name = "oke-node-controller", version, after_help = AFTER)]
pub struct Args {
    /// What to do; `run` when nothing is said
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The configuration: lines of KEY=value, the keys being the variables below. One that is asked for must be there
    #[arg(long = "config", global = true, env = CONFIG_FILE, default_value = DEFAULT_CONFIG)]
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
    /// Everything that can be set.
    #[command(flatten)]
    pub options: Options,
}

/// Where the configuration file is, if there is one.
pub const DEFAULT_CONFIG: &str = "/etc/oke-node-controller/controller.conf";

const AFTER: &str = "\
Flags outrank the environment, the environment outranks the file. `oke-node-controller config --explain` says more of each
key. The API server is found as kubectl finds it: KUBECONFIG, ~/.kube/config, or the pod's service account.

Exit status: 0 told to stop; 1 failed, or the lease was lost; 2 called or configured wrongly.";

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Stay: wait for the lease, then do the work
    Run,
    /// Say what is set, and by whom
    #[command(after_help = "\
Exit status: 0 in order, 2 not.

Examples:
  oke-node-controller config --explain                     every key: default, unit, meaning
  oke-node-controller config --check controller.conf       before it is rolled out: everything that is wrong with it")]
    Config(ConfigArgs),
    /// Say what would be done now, and change nothing
    #[command(after_help = "\
Examples:
  oke-node-controller plan                                 everything; some seconds per hundred instances
  oke-node-controller plan --node 10.0.0.2                 of the cloud, only what is about this Node's instance")]
    Plan(PlanArgs),
}

/// What to plan for, and how to say it.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct PlanArgs {
    /// Ask the cloud about this Node's instance, and no other; may be given several times
    #[arg(long, value_name = "NAME")]
    pub node: Vec<String>,
    /// Ask the cloud about this instance, and no other; may be given several times
    #[arg(long, value_name = "OCID")]
    pub instance: Vec<Ocid>,
    /// How.
    #[command(flatten)]
    pub output: Output,
}

/// Who the controller is towards the OCI API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Principal {
    /// The service account of its pod (enhanced clusters).
    WorkloadIdentity,
    /// The instance that it runs on.
    InstancePrincipal,
    /// A user's key.
    ApiKey,
}

/// Everything that can be set.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "controller-options")]
pub struct Options {
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, global = true, env = "LISTEN", default_value = "127.0.0.1:9809", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The least that is logged
    #[arg(long, global = true, env = "LOG_LEVEL", value_enum, default_value = "info", value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// The namespace of the lease; the pod's own, from the downward API
    #[arg(long, global = true, env = "POD_NAMESPACE", default_value = "oke-node-manager", value_name = "NAME")]
    pub namespace: String,
    /// What this process is called in the lease and in events: the pod's name, from the downward API
    /// [default: host name and a number]
    #[arg(long, global = true, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// The name of the lease
    #[arg(long, global = true, env = "LEASE_NAME", default_value = "oke-node-controller", value_name = "NAME")]
    pub lease_name: String,
    /// How long the lease is good without being renewed, in whole seconds: so long nobody works after the one that does was
    /// killed
    #[arg(long, global = true, env = "LEASE_SECONDS", default_value_t = 15, value_parser = whole_seconds, value_name = "SECONDS")]
    pub lease_seconds: u16,
    /// What the cluster is called in the tags of VNICs; the uid of the namespace kube-system when nothing is said. With
    /// another name all VNICs are tagged anew, and those whose VnicAttachments are gone are not told of any more
    #[arg(long, global = true, env = "CLUSTER_ID", value_name = "NAME")]
    pub cluster_id: Option<String>,
    /// Who the controller is towards the OCI API
    #[arg(
        long,
        global = true,
        env = "OCI_PRINCIPAL",
        value_enum,
        default_value = "workload-identity",
        value_name = "WHO"
    )]
    pub principal: Principal,
    /// With api-key: a file in the format of ~/.oci/config, and below, which of its profiles
    #[arg(long, global = true, env = "OCI_CONFIG_FILE", default_value = "~/.oci/config", value_name = "FILE")]
    pub oci_config_file: PathBuf,
    /// With api-key: the profile of that file
    #[arg(long, global = true, env = "OCI_PROFILE", default_value = "DEFAULT", value_name = "NAME")]
    pub oci_profile: String,
    /// The region, as a name (eu-frankfurt-1) or key (fra); that of the API key's file, or of the instance, when nothing is
    /// said
    #[arg(long, global = true, env = "OCI_REGION", value_name = "NAME")]
    pub region: Option<String>,
    /// The domain of the realm (oraclecloud8.com); the one that the region is known to be in, or else the instance's, when nothing
    /// is said
    #[arg(long, global = true, env = "OCI_REALM_DOMAIN", value_name = "NAME")]
    pub realm_domain: Option<String>,
    /// The core services' endpoint, where it does not follow from the region
    #[arg(long, global = true, env = "OCI_ENDPOINT", value_name = "URL")]
    pub endpoint: Option<String>,
    /// The federation service's endpoint, where it does not follow from the region
    #[arg(long, global = true, env = "OCI_AUTH_ENDPOINT", value_name = "URL")]
    pub auth_endpoint: Option<String>,
    /// A PEM bundle of the only authorities that are believed for OCI; the public ones when nothing is said
    #[arg(long, global = true, env = "OCI_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The instance metadata service, its version included: tells the region, and the instance principal's certificate
    #[arg(long, global = true, env = "OCI_METADATA_BASE_URL", default_value = oci::METADATA_URL, value_name = "URL")]
    pub metadata_url: String,
    /// The most requests per second to the OCI API; it finds out itself how far it must stay below
    #[arg(long, global = true, env = "OCI_REQUESTS_PER_SECOND", default_value_t = 20.0, value_name = "NUMBER")]
    pub requests_per_second: f64,
    /// The most instances that are worked on at once
    #[arg(long, global = true, env = "WORKERS", default_value_t = 32, value_name = "NUMBER")]
    pub workers: u16,
    /// How often each instance is looked at when nothing seems to happen, in seconds: so long a VNIC that somebody else
    /// detached may go unnoticed. Where that would take more than half of the requests, looks are rarer, and whole
    /// compartments are listed this often
    #[arg(long, global = true, env = "RESYNC_SECONDS", default_value_t = 300.0, value_name = "SECONDS")]
    pub resync_seconds: f64,
    /// How soon an instance is looked at again while a VNIC of it is being attached or detached, in seconds; less often
    /// where so many wait that this would take more than half of the requests
    #[arg(long, global = true, env = "POLL_SECONDS", default_value_t = 3.0, value_name = "SECONDS")]
    pub poll_seconds: f64,
    /// The longest pause between two attempts at what fails, in seconds; longer where so much fails, or waits for others to mend
    /// it, that looking at it would take more than a third of the requests
    #[arg(long, global = true, env = "RETRY_MOST_SECONDS", default_value_t = 120.0, value_name = "SECONDS")]
    pub retry_most_seconds: f64,
    /// How long the controller waits at most, by chance, before it restarts in place with a changed configuration file, in
    /// seconds
    #[arg(long, global = true, env = "RELOAD_JITTER_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(..=3600), value_name = "SECONDS")]
    pub reload_jitter_seconds: u16,
}

/// A lease in Kubernetes knows no others.
fn whole_seconds(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "expected a whole number of seconds")
}

/// Every key.
#[must_use]
pub fn keys() -> Keys {
    Keys::of::<Options>()
}

#[cfg(test)]
mod tests {
    use super::keys;

    /// A manifest may be a release ahead of its image, or behind it.
    #[test]
    fn no_key_is_a_slip_of_another_that_was_released_before_it() {
        assert_eq!(keys().alike(), [("", ""); 0]);
    }
}
