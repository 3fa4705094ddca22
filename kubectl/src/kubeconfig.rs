//! The configuration of the client, as kubectl finds it: `--kubeconfig`, the files of KUBECONFIG that exist, `~/.kube/config`, or
//! the pod's service account. kube's own loader refuses a missing file, and compares NO_PROXY with the proxy itself.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use hyper::Uri;
use kube::Config;
use kube::config::{Cluster, ExecAuthCluster, ExecConfig, Kubeconfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::proxy;

const VARIABLE: &str = "KUBECONFIG";

/// The configuration of the chosen context.
pub(crate) fn config(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let variable = |name: &str| env::var(name).ok();
    let Some(found) = read(file)? else {
        let mut config = Config::incluster().context("finding the API server: no kubeconfig, and not in a pod")?;
        config.proxy_url = proxy::of(None, &config.cluster_url, variable)?;
        return Ok(config);
    };
    let mut config = of_context(&found, context)?;
    let cluster = cluster_of(&found, context)?;
    config.proxy_url = proxy::of(cluster.proxy_url.as_deref(), &config.cluster_url, variable)?;
    Ok(config)
}

/// What the user of a context must have installed, if it has a plugin for credentials.
pub(crate) fn missing_plugin(plugin: &ExecConfig) -> String {
    let command = plugin.command.as_deref().unwrap_or_default();
    let hint = plugin.install_hint.as_deref().map(str::trim).filter(|hint| !hint.is_empty());
    let hint = hint.map_or_else(|| "install it, or correct users[].user.exec.command".to_owned(), str::to_owned);
    format!("the kubeconfig gets credentials from the program {command}, which is not installed or not in PATH: {hint}")
}

/// The files, merged; `None` if there are none.
fn read(file: Option<&Path>) -> anyhow::Result<Option<Kubeconfig>> {
    if let Some(file) = file {
        return Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display())).map(Some);
    }
    let listed = env::var_os(VARIABLE).unwrap_or_default();
    let listed: Vec<PathBuf> = env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
    if !listed.is_empty() {
        let existing: Vec<&PathBuf> = listed.iter().filter(|path| path.exists()).collect();
        if existing.is_empty() {
            let names: Vec<String> = listed.iter().map(|path| path.display().to_string()).collect();
            bail!("none of the files in {VARIABLE} exists: {}", names.join(", "));
        }
        return merged(&existing).map(Some);
    }
    let default = env::home_dir().map(|home| home.join(".kube/config")).filter(|path| path.exists());
    default.map(|path| merged(&[&path])).transpose()
}

fn merged(paths: &[&PathBuf]) -> anyhow::Result<Kubeconfig> {
    paths.iter().try_fold(Kubeconfig::default(), |all, path| {
        let next = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
        all.merge(next).with_context(|| format!("merging {}", path.display()))
    })
}

fn context_of<'c>(found: &'c Kubeconfig, context: Option<&'c str>) -> anyhow::Result<&'c kube::config::Context> {
    let name = context.or(found.current_context.as_deref()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| anyhow!("the kubeconfig has no current-context: choose one by --context"))?;
    let named = found.contexts.iter().find(|named| named.name == name).and_then(|named| named.context.as_ref());
    named.with_context(|| format!("the kubeconfig has no context {name}"))
}

fn cluster_of<'c>(found: &'c Kubeconfig, context: Option<&'c str>) -> anyhow::Result<&'c Cluster> {
    let name = &context_of(found, context)?.cluster;
    let named = found.clusters.iter().find(|named| named.name == *name).and_then(|named| named.cluster.as_ref());
    named.with_context(|| format!("the kubeconfig has no cluster {name}"))
}

fn of_context(found: &Kubeconfig, context: Option<&str>) -> anyhow::Result<Config> {
    let chosen = context_of(found, context)?;
    let cluster = cluster_of(found, context)?;
    let server = cluster.server.as_deref().unwrap_or_default();
    let server: Uri = server.parse().with_context(|| format!("reading the server {server:?} of the kubeconfig"))?;
    if server.host().is_none() {
        bail!("the kubeconfig's server {server} is not a URL: expected https://HOST:PORT");
    }
    let mut config = Config::new(server);
    if let Some(namespace) = &chosen.namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    // It reads the authorities of the cluster for plugins, and for us.
    let shown = ExecAuthCluster::try_from(cluster).context("reading the cluster of the kubeconfig")?;
    if let Some(authorities) = &shown.certificate_authority_data {
        let certificates: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(authorities).collect();
        let certificates = certificates.context("reading the certificate authorities of the kubeconfig")?;
        config.root_cert = Some(certificates.into_iter().map(|one| one.to_vec()).collect());
    }
    let user = found.auth_infos.iter().find(|named| Some(&named.name) == chosen.user.as_ref());
    // As kubectl: without a user, requests are anonymous.
    config.auth_info = user.and_then(|named| named.auth_info.clone()).unwrap_or_default();
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(shown);
    }
    Ok(config)
}
