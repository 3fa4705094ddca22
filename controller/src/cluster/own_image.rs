//! The image of the controller's own Pod, which the Pods that it creates have, too.

use api::Received;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use resident::logging::chain;

use super::request::send;

/// The image of the Pod with this name.
///
/// # Errors
/// When it cannot be read, in words.
pub(crate) async fn own_image(client: &Client, namespace: &str, name: &str) -> Result<String, String> {
    let pods: Api<Received<Pod>> = Api::namespaced(client.clone(), namespace);
    let own = ListParams::default().fields(&format!("metadata.name={name}"));
    let found =
        send(pods.list(&own)).await.map_err(|error| format!("read the controller's image: {}", chain(&error)))?;
    let own = found.items.into_iter().next().and_then(|pod| pod.0.ok());
    let image = own.and_then(|pod| pod.spec?.containers.into_iter().next()?.image);
    image.ok_or_else(|| format!("the controller's own Pod {name} is not found, so its image is unknown"))
}
