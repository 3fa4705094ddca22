//! Service accounts and their tokens, as the token controller and a kubelet would make them.

use std::fmt;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount as Account};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::arguments::ISSUER;
use crate::identity::Identity;
use anyhow::{Context, Result, anyhow};

/// A service account by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The namespace of the account.
    pub namespace: String,
    /// The name of the account in its namespace.
    pub name: String,
}

/// What a token lives and dies with, and names in its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A token that no object bounds.
    Nothing,
    /// A pod of the account's namespace; where the pod is on a node, its token names that too.
    Pod(String),
    /// A token that ends with this Node.
    Node(String),
}

/// How long a token is good, in seconds: longer than any test, and what a kubelet requests.
const LIFETIME: i64 = 3607;

impl ServiceAccount {
    /// The account `name` of `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Makes it, and its namespace where that is missing.
    pub(crate) async fn create(&self, client: &Client) -> Result<()> {
        let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata: named(&self.namespace), ..Namespace::default() };
        let namespaces = Api::all(client.clone());
        made(namespaces.create(&PostParams::default(), &namespace).await)
            .with_context(|| format!("create namespace {}", self.namespace))?;
        let account = Account { metadata: named(&self.name), ..Account::default() };
        let accounts = Api::namespaced(client.clone(), &self.namespace);
        made(accounts.create(&PostParams::default(), &account).await)
            .with_context(|| format!("create service account {self}"))
    }

    /// A token of it, by TokenRequest.
    pub(crate) async fn token(&self, client: &Client, bound: &Bound) -> Result<Identity> {
        let spec = TokenRequestSpec {
            audiences: vec![ISSUER.to_owned()],
            bound_object_ref: bound.reference(client, &self.namespace).await?,
            expiration_seconds: Some(LIFETIME),
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<Account> = Api::namespaced(client.clone(), &self.namespace);
        let response = accounts.create_token_request(&self.name, &PostParams::default(), &request).await;
        let token = response.with_context(|| format!("request a token of {self}"))?.status.map(|status| status.token);
        token.map(Identity::of_token).ok_or_else(|| anyhow!("no token of {self} was given"))
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Bound {
    async fn reference(&self, client: &Client, namespace: &str) -> Result<Option<BoundObjectReference>> {
        let (kind, name, uid) = match self {
            Self::Nothing => return Ok(None),
            Self::Pod(name) => {
                let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
                let pod = pods.get(name).await.with_context(|| format!("read pod {namespace}/{name}"))?;
                ("Pod", name, pod.metadata.uid)
            }
            Self::Node(name) => {
                let nodes: Api<Node> = Api::all(client.clone());
                ("Node", name, nodes.get(name).await.with_context(|| format!("read node {name}"))?.metadata.uid)
            }
        };
        Ok(Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.clone()),
            uid,
        }))
    }
}

/// It may exist already.
fn made<T>(outcome: kube::Result<T>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        other => other.map(drop),
    }
}
