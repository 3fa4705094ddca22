//! Whole lists of the API server, page by page and bounded.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use thiserror::Error;

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
    use kube::Client;
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
