//! Builds the OCI client from the settings.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use backoff::Policy;
use oci::{
    ApiKey, Budget, Endpoints, InstancePrincipal, Login, Observer, Oci, Options, Region, RegionName, Trust,
    WorkloadIdentity,
};
use resident::config::file::read;

use crate::args::{OciSettings, Principal};

/// A failed reconcile is reported and retried, so a call need not hold a worker for long.
const POLICY_DEADLINE: Duration = Duration::from_secs(30);

/// Why there is no client.
#[derive(Debug)]
pub(crate) enum NoClient {
    /// The login, the region or an authority is not valid: a retry cannot help.
    Misconfigured(anyhow::Error),
    /// Something that it needs is not available now.
    NotYet(anyhow::Error),
}

impl NoClient {
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Misconfigured(error) | Self::NotYet(error) => error.context("setting up the OCI client"),
        }
    }
}

/// Reads credentials and endpoints, and builds the client with the rates of the settings. The observer sees its requests.
pub(crate) async fn connect(settings: &OciSettings, observer: Arc<dyn Observer>) -> Result<Oci, NoClient> {
    let (login, region, trust) = login(settings).map_err(NoClient::Misconfigured)?;
    let endpoints = endpoints(settings, region, &trust).await?;
    let policy = Policy { deadline: POLICY_DEADLINE, ..oci::POLICY };
    let options = Options { policy, budget: Budget::new(settings.rates()), trust, observer: Some(observer) };
    Oci::new(&endpoints, login, options).map_err(|error| NoClient::Misconfigured(error.into()))
}

/// The login, region and trusted authorities. Reads files and sends no request.
fn login(settings: &OciSettings) -> anyhow::Result<(Login, Option<RegionName>, Trust)> {
    let trust = match &settings.ca_file {
        Some(file) => {
            let pem = read(file).with_context(|| format!("reading OCI_CA_FILE {}", file.display()))?;
            Trust::Only(pem.into_bytes())
        }
        None => Trust::Public,
    };
    let mut region = settings.region.clone();
    let login = match settings.principal {
        Principal::ApiKey => {
            let key = ApiKey::from_config_file(&settings.key_file, &settings.profile)?;
            region = region.or_else(|| key.region().cloned());
            Login::api_key(key)
        }
        Principal::Instance => {
            let instance = InstancePrincipal::new(&settings.metadata_url, &trust)?;
            Login::instance_principal(match &settings.auth_endpoint {
                Some(service) => instance.with_federation(service.clone()),
                None => instance,
            })
        }
        Principal::WorkloadIdentity => {
            let host = std::env::var("KUBERNETES_SERVICE_HOST")
                .context("OCI_PRINCIPAL=workload-identity works in a pod only: KUBERNETES_SERVICE_HOST is not set")?;
            Login::workload_identity(WorkloadIdentity::new(&host))
        }
    };
    Ok((login, region, trust))
}

/// The configured endpoint, else that of the region.
async fn endpoints(settings: &OciSettings, named: Option<RegionName>, trust: &Trust) -> Result<Endpoints, NoClient> {
    let mut endpoints = match &settings.endpoint {
        Some(core) => Endpoints { core: core.clone(), auth: core.clone() },
        None => region(settings, named, trust).await?.endpoints(),
    };
    if let Some(auth) = &settings.auth_endpoint {
        endpoints.auth.clone_from(auth);
    }
    Ok(endpoints)
}

/// The configured region, in the configured or known realm. Missing parts come from the metadata service: a login of one
/// realm is unknown in another.
async fn region(settings: &OciSettings, named: Option<RegionName>, trust: &Trust) -> Result<Region, NoClient> {
    let realm = settings.realm.clone().or_else(|| named.as_ref()?.realm());
    let missing = match (named.clone(), realm.clone()) {
        (Some(name), Some(realm)) => return Ok(Region::new(name, realm)),
        (Some(name), None) => format!("which realm {name} is in is not known, and OCI_REALM_DOMAIN is not set"),
        (None, _) => "neither OCI_REGION nor OCI_ENDPOINT is set".to_owned(),
    };
    let metadata = InstancePrincipal::new(&settings.metadata_url, trust);
    let here = metadata.map_err(|error| NoClient::Misconfigured(error.into()))?.region().await;
    let here = here.context(missing).map_err(NoClient::NotYet)?;
    // Of a region that the table lists, `here` has the table's realm.
    let name = named.unwrap_or_else(|| here.name().clone());
    Ok(Region::new(name, realm.unwrap_or_else(|| here.realm().clone())))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use clap::Parser;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::args::Args;

    /// A metadata service that knows the region.
    async fn metadata(listener: TcpListener) {
        let info = r#"{"realmDomainComponent":"oraclecloud99.com","regionIdentifier":"ap-chiyoda-9"}"#;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"GET /opc/v2/instance/regionInfo "));
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", info.len());
            stream.write_all(format!("{head}{info}").as_bytes()).await.unwrap();
        }
        pending().await
    }

    async fn core(options: &[&str], listener: TcpListener) -> String {
        let url = format!("http://{}/opc/v2", listener.local_addr().unwrap());
        let line = ["controller", "--oci-metadata-base-url", &url].into_iter().chain(options.iter().copied());
        let settings = Args::parse_from(line).options.oci;
        tokio::select! {
            endpoints = endpoints(&settings, settings.region.clone(), &Trust::Public) => endpoints.unwrap().core.to_string(),
            () = metadata(listener) => unreachable!("it never returns"),
        }
    }

    #[tokio::test]
    async fn region_and_realm_come_from_instance_unless_configured_or_known() {
        for (options, expected) in [
            (&[][..], "https://iaas.ap-chiyoda-9.oraclecloud99.com"),
            (&["--oci-region", "fra"][..], "https://iaas.eu-frankfurt-1.oraclecloud.com"),
            (&["--oci-region", "ap-new-1"][..], "https://iaas.ap-new-1.oraclecloud99.com"),
            (&["--oci-realm-domain", "here.example"][..], "https://iaas.ap-chiyoda-9.here.example"),
            (
                &["--oci-region", "fra", "--oci-realm-domain", "here.example"][..],
                "https://iaas.eu-frankfurt-1.here.example",
            ),
            (&["--oci-region", "fra", "--oci-endpoint", "https://here"][..], "https://here"),
        ] {
            assert_eq!(core(options, TcpListener::bind(("127.0.0.1", 0)).await.unwrap()).await, expected);
        }
    }
}
