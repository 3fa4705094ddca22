//! The OCI client that the settings describe.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use oci::{
    ApiKey, Budget, Endpoints, InstancePrincipal, Login, Observer, Oci, Options, Policy, Region, Trust,
    WorkloadIdentity,
};

use crate::args::Principal;
use crate::settings::OciSettings;

/// A reconciler that gets an error shows it and comes back by itself, so a call does not hold a worker for long.
const POLICY_DEADLINE: Duration = Duration::from_secs(30);

/// Makes the client.
///
/// # Errors
/// When the login, the region or an authority makes no sense, or is not to be had.
pub async fn connect(settings: &OciSettings, observer: Arc<dyn Observer>) -> anyhow::Result<Oci> {
    let trust = match &settings.ca_file {
        Some(file) => {
            Trust::Only(std::fs::read(file).with_context(|| format!("reading OCI_CA_FILE {}", file.display()))?)
        }
        None => Trust::Public,
    };
    let mut region = match (&settings.region, &settings.realm_domain) {
        (Some(name), Some(domain)) => Some(Region::in_realm(name, domain)?),
        (Some(name), None) => Some(Region::new(name)?),
        (None, _) => None,
    };
    let login = match settings.principal {
        Principal::ApiKey => {
            let (file, profile) = &settings.config_file;
            let key = ApiKey::from_config_file(file, profile)?;
            region = region.or_else(|| key.region().cloned());
            Login::api_key(key)
        }
        Principal::InstancePrincipal => {
            let instance = InstancePrincipal::new(&settings.metadata_url, &trust)?;
            Login::instance_principal(match &settings.auth_endpoint {
                Some(url) => instance.with_federation(url),
                None => instance,
            })
        }
        Principal::WorkloadIdentity => {
            let host = std::env::var("KUBERNETES_SERVICE_HOST")
                .context("OCI_PRINCIPAL=workload-identity works in a pod only: KUBERNETES_SERVICE_HOST is not set")?;
            Login::workload_identity(WorkloadIdentity::new(&host))
        }
    };
    let mut endpoints = match (&settings.endpoint, region) {
        (Some(core), _) => Endpoints { core: core.clone(), auth: core.clone() },
        (None, Some(region)) => region.endpoints(),
        (None, None) => anyhow::bail!("OCI_REGION is not set, and neither is OCI_ENDPOINT"),
    };
    if let Some(auth) = &settings.auth_endpoint {
        endpoints.auth.clone_from(auth);
    }
    let policy = Policy { deadline: POLICY_DEADLINE, ..Policy::default() };
    let options = Options { policy, budget: Budget::new(settings.rates.clone()), trust, observer: Some(observer) };
    Ok(Oci::new(&endpoints, login, options)?)
}
