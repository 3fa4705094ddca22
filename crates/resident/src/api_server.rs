//! The API server, as a pod on the host's network reaches it: whether there is one, and a client of it.

use std::fmt::Debug;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use thiserror::Error;

const CONNECT: Duration = Duration::from_secs(10);
/// The objects of a page, as kubectl lists them.
const PAGE: u32 = 500;

/// The most pages of a list: 200,000 objects. A server that always names another page would never end.
const PAGES_MAX: usize = 400;

/// Why there is no list.
#[derive(Debug, Error)]
pub enum ListError {
    /// The API server did not answer, or refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// It has more than the largest cluster.
    #[error("the list has more than {PAGES_MAX} pages")]
    TooLong,
}

/// What the kubelet mounts, and `Config::incluster` reads.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Whether an API server can be asked.
pub fn in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) && Path::new(TOKEN).exists()
}

/// The address of the API server that [`client`] uses; none outside a cluster, and where it has a name.
pub fn address() -> Option<IpAddr> {
    std::env::var("KUBERNETES_SERVICE_HOST").ok()?.trim_matches(['[', ']']).parse().ok()
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
/// When the API server does not answer or refuses, or has too many pages.
pub async fn list<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    selected: ListParams,
) -> Result<Vec<K>, ListError> {
    let mut found = Vec::new();
    let mut params = selected.limit(PAGE);
    for _ in 0..PAGES_MAX {
        let page = api.list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
    Err(ListError::TooLong)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::{Request, Response};
    use k8s_openapi::api::core::v1::Node;
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn list_without_end_is_an_error() {
        let page = async |_: Request<Body>| {
            let page = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"continue":"x"},"items":[{"metadata":{}}]}"#;
            Ok::<_, Infallible>(Response::new(Body::from(page.as_bytes().to_vec())))
        };
        let nodes: Api<Node> = Api::all(Client::new(service_fn(page), "default"));
        assert!(matches!(list(&nodes, ListParams::default()).await, Err(ListError::TooLong)));
    }
}
