//! The API server, as a pod on the host's network reaches it: whether there is one, and a client of it.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;

const CONNECT: Duration = Duration::from_secs(10);
/// The objects of a page, as kubectl lists them.
const PAGE: u32 = 500;

/// What the kubelet mounts, and `Config::incluster` reads.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Whether an API server can be asked.
pub fn in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) && Path::new(TOKEN).exists()
}

/// A client, and where its server is. Create one for each use: the authority, the token and the address may have
/// changed.
///
/// # Errors
/// When what the kubelet mounts is of no use.
pub fn client() -> Result<(Client, String), String> {
    let mut config = Config::incluster().map_err(|error| error.to_string())?;
    config.connect_timeout = Some(CONNECT);
    // Each caller has its own retry policy.
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    Ok((Client::try_from(config).map_err(|error| error.to_string())?, server))
}

/// Lists the selected objects, page by page.
///
/// # Errors
/// When the API server does not answer or refuses.
pub async fn list<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, selected: ListParams) -> kube::Result<Vec<K>> {
    let mut found = Vec::new();
    let mut params = selected.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}
