//! What OKE says of an instance's pod network, asked for by name before a VNIC is attached to the instance or detached from it.
//! Reads, and decides nothing.
//!
//! OKE's controller, while it makes a pod network, takes every secondary VNIC on the instance for one of the pods': it counts them
//! to know how many are missing, gives them pods' addresses, and fails where one comes meanwhile.

use std::future::Future;
use std::time::Duration;

use api::NativePodNetwork;
use kube::api::DynamicObject;
use kube::{Api, Client};
use resident::logging::chain;
use tokio::time::timeout;
use vcn::Ocid;

/// For the one request.
const DEADLINE: Duration = Duration::from_secs(20);

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNetwork {
    /// There is none: no such object, or no such kind in the cluster.
    Absent,
    /// OKE makes one, or has made it.
    There(NativePodNetwork),
    /// Nobody knows, and why: the same words as long as nothing changes.
    Unread(String),
}

/// Who can be asked.
pub trait PodNetworks: Send + Sync {
    /// The one of this instance, as it is now.
    fn pod_network(&self, instance: &Ocid) -> impl Future<Output = PodNetwork> + Send;
}

/// The API server's.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct KubePodNetworks(Api<DynamicObject>);

impl KubePodNetworks {
    /// Those that this client sees.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Api::all_with(client, &api::npn::resource()))
    }
}

impl PodNetworks for KubePodNetworks {
    async fn pod_network(&self, instance: &Ocid) -> PodNetwork {
        let name = instance.unique_id();
        let (why, error) = match timeout(DEADLINE, self.0.get(name)).await {
            Ok(Ok(object)) => return understood(instance, object),
            // No such object, or, in a text that is no Status, no such kind.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return PodNetwork::Absent,
            Ok(Err(kube::Error::Api(status))) => {
                let why = format!("the API server answers {} for NativePodNetwork {name}", status.code);
                (why, chain(&kube::Error::Api(status)))
            }
            Ok(Err(error)) => (silent(name), chain(&error)),
            Err(_) => (silent(name), format!("no answer within {DEADLINE:?}")),
        };
        tracing::warn!(event = "npn.unread", %instance, error);
        PodNetwork::Unread(why)
    }
}

fn silent(name: &str) -> String {
    format!("the API server does not tell of NativePodNetwork {name}")
}

fn understood(instance: &Ocid, object: DynamicObject) -> PodNetwork {
    let name = instance.unique_id();
    let document = serde_json::to_vec(&object).unwrap_or_default();
    let why = match NativePodNetwork::parse(&document) {
        Ok(npn) if npn.instance == *instance => return PodNetwork::There(npn),
        Ok(npn) => format!("NativePodNetwork {name} is of another instance, {}", npn.instance),
        Err(error) => chain(&error),
    };
    tracing::warn!(event = "npn.unread", %instance, error = why);
    PodNetwork::Unread(why)
}
