//! The token for the leader's bundle: of an account without rights, for an audience that the API server does not have, for ten
//! minutes. The user's own credentials never leave for the leader's host, and users without a token, who have certificates or a
//! program for credentials as with OKE, need none.

use anyhow::{Context as _, bail};
use api::bundle::{BUNDLE_ACCOUNT, BUNDLE_AUDIENCE};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;

use crate::cluster::Cluster;

/// The shortest that the API server allows.
const LIFETIME_SECONDS: i64 = 600;

/// Creates one. The inner error: the cluster has no such account.
pub(crate) async fn create(cluster: &Cluster) -> anyhow::Result<Result<String, String>> {
    let namespace = &cluster.target.namespace;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await?, namespace);
    let spec = TokenRequestSpec {
        audiences: vec![BUNDLE_AUDIENCE.to_owned()],
        expiration_seconds: Some(LIFETIME_SECONDS),
        bound_object_ref: None,
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let what = format!("creating a token of ServiceAccount {namespace}/{BUNDLE_ACCOUNT}");
    match accounts.create_token_request(BUNDLE_ACCOUNT, &PostParams::default(), &request).await {
        Ok(created) => Ok(Ok(created.status.with_context(|| format!("{what}: no token"))?.token)),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Ok(Err(format!("{what}: {}. Apply the manifests of this version", status.message)))
        }
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let role = "ClusterRole and the Roles oke-node-bundle";
            bail!(
                "{what}: {}. Your user needs the {role}, in addition to oke-node-viewer: kubectl create clusterrolebinding NAME \
                 --clusterrole=oke-node-bundle --user=USER; kubectl -n {namespace} create rolebinding NAME \
                 --role=oke-node-bundle --user=USER; kubectl -n default create rolebinding NAME --role=oke-node-bundle \
                 --user=USER",
                status.message
            )
        }
        Err(error) => Err(error).context(what),
    }
}
