//! The settings, validated: the only configuration that the rest of the controller sees.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use oci::{Endpoint, MetadataUrl, Rates, RealmDomain, RegionName};
use resident::args::{NodeIpMissing, Toggle};
use resident::config::ProgramSettings;
use resident::scrape::MetricsPort;
use thiserror::Error;
use tracing::Level;

use crate::args::{Options, Principal, TestTargets};

/// All settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where health and metrics are served.
    pub listen: SocketAddr,
    /// Where metrics are served to other machines.
    pub metrics_port: Option<MetricsPort>,
    /// Where the fleet is served: on loopback.
    pub view_listen: SocketAddr,
    /// The time in which each agent is asked once.
    pub agent_poll: Duration,
    /// Whether the states of the cloud agent's plugins are read.
    pub reads_plugin_states: bool,
    /// Rules of health signals for all agents.
    pub health_rules: PathBuf,
    /// The least that is logged.
    pub log_level: Level,
    /// The longest random delay before a changed configuration file takes effect.
    pub reload_jitter: Duration,
    /// The Lease.
    pub lease: LeaseSettings,
    /// The cluster's name in tags, if it was set.
    pub cluster_id: Option<String>,
    /// The OCI API.
    pub oci: OciSettings,
    /// The most instances that are handled at once.
    pub workers: usize,
    /// Intervals of reconciles and retries.
    pub pace: Pace,
    /// What NetworkTests may probe.
    pub network_test_targets: TestTargets,
}

/// Which Lease, and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Its namespace.
    pub namespace: String,
    /// This process's name, if it was set.
    pub identity: Option<String>,
    /// Seconds for which it is valid without renewal.
    pub seconds: u16,
}

/// How the OCI API is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct OciSettings {
    /// The kind of login.
    pub principal: Principal,
    /// The API key's file and profile.
    pub config_file: (PathBuf, String),
    /// The region, if it was set.
    pub region: Option<RegionName>,
    /// The realm, if it was set.
    pub realm: Option<RealmDomain>,
    /// The endpoint of the core services, if it was set.
    pub endpoint: Option<Endpoint>,
    /// The endpoint of the federation service, if it was set.
    pub auth_endpoint: Option<Endpoint>,
    /// The trusted certificate authorities; the public ones by default.
    pub ca_file: Option<PathBuf>,
    /// The metadata service.
    pub metadata_url: MetadataUrl,
    /// Bounds of the budget.
    pub rates: Rates,
}

/// Intervals of reconciles and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Without events.
    pub resync: Duration,
    /// While something is in progress.
    pub poll: Duration,
    /// The longest backoff.
    pub retry_most: Duration,
}

/// Why options are not valid settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A port of an unknown address.
    #[error(transparent)]
    MetricsPort(#[from] NodeIpMissing),
    /// A value that is not valid.
    #[error("{option} is {value}, which is not {expected}")]
    Invalid {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// Which values are valid.
        expected: String,
    },
}

/// The fewest requests per second: so that there is always an answer to adapt to.
const LEAST_RATE: f64 = 0.5;
/// A tag's value in OCI has up to 256 characters; uids have 36.
const LONGEST_CLUSTER_ID: usize = 128;
const LONGEST_NAME: usize = 253;
/// An endpoint.
const HOST: &str = "https://host";

impl Settings {
    /// Validates options.
    ///
    /// # Errors
    /// When one is not valid.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        let rate = within("--oci-requests-per-second", options.oci_requests_per_second, LEAST_RATE..=1000.0)?;
        if !options.view_listen.ip().is_loopback() {
            return Err(invalid("--view-listen", options.view_listen, "an address of loopback (127.0.0.1:9811)"));
        }
        let lease = LeaseSettings {
            namespace: name("--pod-namespace", options.pod_namespace, LONGEST_NAME)?,
            identity: non_empty(options.pod_name).map(|text| name("--pod-name", text, LONGEST_NAME)).transpose()?,
            // One that is shorter would expire before its renewal; one that is longer would last too long after a crash.
            seconds: within("--lease-seconds", options.lease_seconds, 1..=300)?,
        };
        let cluster_id = non_empty(options.cluster_id);
        let cluster_id = cluster_id.map(|text| name("--cluster-id", text, LONGEST_CLUSTER_ID)).transpose()?;
        let oci = OciSettings {
            principal: options.oci_principal,
            config_file: (home(options.oci_config_file), options.oci_profile),
            region: non_empty(options.oci_region).map(region).transpose()?,
            realm: non_empty(options.oci_realm_domain).map(realm).transpose()?,
            endpoint: non_empty(options.oci_endpoint).map(|text| url("--oci-endpoint", text, HOST)).transpose()?,
            auth_endpoint: non_empty(options.oci_auth_endpoint)
                .map(|text| url("--oci-auth-endpoint", text, HOST))
                .transpose()?,
            ca_file: options.oci_ca_file.filter(|path| !path.as_os_str().is_empty()),
            metadata_url: url("--oci-metadata-base-url", options.oci_metadata_base_url, oci::METADATA_URL)?,
            rates: Rates { most: rate, least: LEAST_RATE, burst: (rate / 4.0).max(1.0) },
        };
        let pace = Pace {
            resync: interval("--resync-seconds", options.resync_seconds, 1.0..=86_400.0)?,
            poll: interval("--poll-seconds", options.poll_seconds, 0.05..=60.0)?,
            retry_most: interval("--retry-most-seconds", options.retry_most_seconds, 1.0..=3600.0)?,
        };
        Ok(Self {
            listen: options.listen,
            metrics_port: options.resident.metrics()?,
            view_listen: options.view_listen,
            agent_poll: Duration::from_secs(options.agent_poll_seconds.into()),
            reads_plugin_states: options.plugin_states == Toggle::On,
            health_rules: options.health_rules,
            log_level: options.resident.log_level.into(),
            reload_jitter: options.resident.reload_jitter(),
            lease,
            cluster_id,
            oci,
            workers: within("--workers", options.workers, 1..=512)?.into(),
            pace,
            network_test_targets: options.network_test_targets,
        })
    }
}

impl ProgramSettings for Settings {
    type Options = Options;
    type Error = SettingsError;

    fn from_options(options: Options) -> Result<Self, SettingsError> {
        Self::new(options)
    }
}

/// An empty value in a manifest means "not set".
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn invalid(option: &'static str, value: impl Display, expected: impl Into<String>) -> SettingsError {
    SettingsError::Invalid { option, value: value.to_string(), expected: expected.into() }
}

fn name(option: &'static str, text: String, most: usize) -> Result<String, SettingsError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if (1..=most).contains(&text.len()) && text.chars().all(fits) {
        Ok(text)
    } else {
        Err(invalid(option, format!("{text:?}"), format!("1 to {most} letters, digits, '-', '.' or '_'")))
    }
}

fn region(text: String) -> Result<RegionName, SettingsError> {
    let expected = "a region's name (eu-frankfurt-1) or a key that is known (fra)";
    RegionName::new(&text).map_err(|_| invalid("--oci-region", format!("{text:?}"), expected))
}

fn realm(text: String) -> Result<RealmDomain, SettingsError> {
    let expected = "a domain (oraclecloud8.com)";
    RealmDomain::new(&text).map_err(|_| invalid("--oci-realm-domain", format!("{text:?}"), expected))
}

fn url<U: FromStr>(option: &'static str, text: String, form: &str) -> Result<U, SettingsError> {
    text.parse().map_err(|_| invalid(option, format!("{text:?}"), format!("of the form {form}")))
}

fn within<T: PartialOrd + Display>(
    option: &'static str,
    value: T,
    bounds: RangeInclusive<T>,
) -> Result<T, SettingsError> {
    let is_valid = bounds.contains(&value);
    let (least, most) = bounds.into_inner();
    if is_valid { Ok(value) } else { Err(invalid(option, value, format!("between {least} and {most}"))) }
}

fn interval(option: &'static str, seconds: f64, bounds: RangeInclusive<f64>) -> Result<Duration, SettingsError> {
    within(option, seconds, bounds).map(Duration::from_secs_f64)
}

fn home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(below), Some(home)) => PathBuf::from(home).join(below),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn read(arguments: &[&str]) -> Result<Settings, SettingsError> {
        let command = ["oke-node-controller"].iter().chain(arguments);
        Settings::new(Args::try_parse_from(command).unwrap().options)
    }

    #[test]
    fn nothing_typed_is_a_valid_setting() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.oci.principal, Principal::WorkloadIdentity);
        assert_eq!(settings.pace.resync, Duration::from_mins(5));
        assert_eq!(settings.oci.rates.burst, 5.0);
    }

    #[test]
    fn invalid_value_error_names_its_option() {
        for (arguments, option) in [
            (["--lease-seconds", "0"], "--lease-seconds"),
            (["--resync-seconds", "NaN"], "--resync-seconds"),
            (["--poll-seconds", "61"], "--poll-seconds"),
            (["--oci-requests-per-second", "0"], "--oci-requests-per-second"),
            (["--workers", "0"], "--workers"),
            (["--metrics-port", "9809"], "--metrics-port needs --node-ip (NODE_IP)"),
            (["--view-listen", "0.0.0.0:9811"], "--view-listen"),
            (["--cluster-id", "a b"], "--cluster-id"),
            (["--oci-region", "frx"], "--oci-region"),
            (["--oci-endpoint", "ftp://x"], "--oci-endpoint"),
            (["--oci-endpoint", "https://x/20160918"], "--oci-endpoint"),
            (["--oci-auth-endpoint", "auth.example"], "--oci-auth-endpoint"),
            (["--oci-metadata-base-url", "169.254.169.254/opc/v2"], "--oci-metadata-base-url"),
            (["--oci-realm-domain", "https://oraclecloud8.com"], "--oci-realm-domain"),
        ] {
            let message = read(&arguments).unwrap_err().to_string();
            assert!(message.contains(option), "{message}");
        }
    }

    #[test]
    fn a_lease_is_of_whole_seconds() {
        let error = Args::try_parse_from(["oke-node-controller", "--lease-seconds", "1.9"]).unwrap_err();
        assert!(error.to_string().contains("expected a whole number of seconds"), "{error}");
        assert_eq!(read(&["--lease-seconds", "2"]).unwrap().lease.seconds, 2);
    }

    #[test]
    fn an_empty_value_is_not_set() {
        let settings = read(&["--cluster-id=", "--pod-name=", "--oci-region="]).unwrap();
        assert_eq!((settings.cluster_id, settings.lease.identity), (None, None));
        assert_eq!(settings.oci.region, None);
    }
}
