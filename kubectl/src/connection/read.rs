//! Reads the objects of a connection with the user's own rights. A right that is missing hides one fact, not the others.

use std::fmt::Debug;

use anyhow::{Context as _, bail};
use api::Received;
use command::chain;
use command::list;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use kube::{Api, Client};
use serde::de::DeserializeOwned;

use super::objects::{Objects, OtherPolicies, is_in_host_network, node_of};
use crate::ends::{ObjectName, Source, Target};

/// The label of a slice with the name of its Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";
/// The cluster's DNS: its namespace, and its Service.
const DNS: (&str, &str) = ("kube-system", "kube-dns");
/// Kinds of policies that other programs interpret, by their API group.
const OTHER_KINDS: [(&str, &[&str]); 5] = [
    ("cilium.io", &["CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"]),
    ("crd.projectcalico.org", &["NetworkPolicy", "GlobalNetworkPolicy"]),
    ("projectcalico.org", &["NetworkPolicy", "GlobalNetworkPolicy"]),
    ("policy.networking.k8s.io", &["AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy"]),
    ("crd.antrea.io", &["NetworkPolicy", "ClusterNetworkPolicy"]),
];

/// Reads what facts need.
///
/// # Errors
/// When an end cannot be read: nothing is known without it.
pub(crate) async fn read(client: &Client, from: &Source, to: &Target) -> anyhow::Result<Objects> {
    let mut found = Objects::default();
    let source = async {
        match from {
            Source::Pod(name) => get::<Pod>(&namespaced(client, name), name, "Pod").await,
            Source::Node(_) => Ok(None),
        }
    };
    let target = async {
        match to {
            Target::Service { name, .. } => get::<Service>(&namespaced(client, name), name, "Service").await,
            _ => Ok(None),
        }
    };
    let target_pod = async {
        match to {
            Target::Pod(name) => get::<Pod>(&namespaced(client, name), name, "Pod").await,
            _ => Ok(None),
        }
    };
    let (source, service, target_pod) = tokio::join!(source, target, target_pod);
    (found.source, found.service, found.target) = (source?, service?, target_pod?);
    let node = match from {
        Source::Node(node) => node.split('/').next().map(str::to_owned),
        Source::Pod(_) => found.source.as_ref().and_then(node_of).map(str::to_owned),
    };
    let spaces = namespaces(from, to, &found);
    let (node, slices, selected, policies, others, dns) = tokio::join!(
        node_object(client, node),
        slices(client, to),
        selected(client, to, found.service.as_ref()),
        policies(client, &spaces),
        other_policies(client),
        dns(client, to)
    );
    let mut unread = Vec::new();
    found.node = kept(node, &mut unread).flatten();
    found.slices = kept(slices, &mut unread);
    found.selected = kept(selected, &mut unread);
    for (space, policies, labels) in policies {
        found.policies.extend(kept(policies, &mut unread).into_iter().flatten());
        found.namespaces.extend(kept(labels, &mut unread).map(|labels| (space, labels)));
    }
    found.other_policies = kept(others, &mut unread).unwrap_or_default();
    (found.dns, found.dns_pods) = kept(dns, &mut unread).unwrap_or_default();
    unread.sort();
    unread.dedup();
    found.unread = unread;
    Ok(found)
}

/// A result, or its reason among what could not be read.
fn kept<T>(result: Result<T, String>, unread: &mut Vec<String>) -> Option<T> {
    result.map_err(|why| unread.push(why)).ok()
}

/// The namespaces whose policies count.
fn namespaces(from: &Source, to: &Target, found: &Objects) -> Vec<String> {
    let mut spaces = Vec::new();
    if let Source::Pod(name) = from
        && found.source.as_ref().is_some_and(|pod| !is_in_host_network(pod))
    {
        spaces.push(name.namespace.clone());
    }
    if let Target::Service { name, .. } | Target::Pod(name) = to {
        spaces.push(name.namespace.clone());
    }
    spaces.sort();
    spaces.dedup();
    spaces
}

fn namespaced<K>(client: &Client, name: &ObjectName) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client.clone(), &name.namespace)
}

/// An end of the connection.
async fn get<K>(api: &Api<Received<K>>, name: &ObjectName, kind: &str) -> anyhow::Result<Option<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let found = api.get_opt(&name.name).await.with_context(|| format!("reading {kind} {name}"))?;
    match found {
        None => Ok(None),
        Some(Received(Ok(object))) => Ok(Some(object)),
        Some(Received(Err(unreadable))) => bail!("{kind} {name} cannot be read: {}", unreadable.error),
    }
}

async fn listed<K>(api: Api<Received<K>>, params: ListParams, what: &str) -> Result<Vec<K>, String>
where
    K: Clone + Debug + DeserializeOwned,
{
    let found = list(&api, params).await.map_err(|error| format!("{what} not read: {}", chain(&error)))?;
    Ok(found.into_iter().filter_map(|object| object.0.ok()).collect())
}

async fn node_object(client: &Client, name: Option<String>) -> Result<Option<Node>, String> {
    let Some(name) = name else { return Ok(None) };
    let api: Api<Received<Node>> = Api::all(client.clone());
    let found = api.get_opt(&name).await.map_err(|error| format!("Node {name} not read: {}", chain(&error)))?;
    Ok(found.and_then(|node| node.0.ok()))
}

async fn slices(client: &Client, to: &Target) -> Result<Vec<EndpointSlice>, String> {
    let Target::Service { name, .. } = to else { return Ok(Vec::new()) };
    let params = ListParams::default().labels(&format!("{OF_SERVICE}={}", name.name));
    listed(namespaced(client, name), params, "EndpointSlices").await
}

async fn selected(client: &Client, to: &Target, service: Option<&Service>) -> Result<Vec<Pod>, String> {
    let (Target::Service { name, .. }, Some(service)) = (to, service) else { return Ok(Vec::new()) };
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    if selector.is_empty() {
        return Ok(Vec::new());
    }
    let params = ListParams::default().labels_from(&Selector::from_iter(selector));
    listed(namespaced(client, name), params, "Pods").await
}

type OfNamespace =
    (String, Result<Vec<NetworkPolicy>, String>, Result<std::collections::BTreeMap<String, String>, String>);

async fn policies(client: &Client, spaces: &[String]) -> Vec<OfNamespace> {
    let mut found = Vec::new();
    for space in spaces {
        let api: Api<Received<NetworkPolicy>> = Api::namespaced(client.clone(), space);
        let what = format!("NetworkPolicies of {space}");
        let (policies, labels) =
            tokio::join!(listed(api, ListParams::default(), &what), namespace_labels(client, space));
        found.push((space.clone(), policies, labels));
    }
    found
}

async fn namespace_labels(client: &Client, space: &str) -> Result<std::collections::BTreeMap<String, String>, String> {
    let api: Api<Received<Namespace>> = Api::all(client.clone());
    let found = api.get(space).await.map_err(|error| format!("Namespace {space} not read: {}", chain(&error)))?;
    let labels = found.0.map(|namespace| namespace.metadata.labels.unwrap_or_default());
    labels.map_err(|unreadable| format!("Namespace {space} not read: {}", unreadable.error))
}

/// The cluster's DNS; none where it has another name.
async fn dns(client: &Client, to: &Target) -> Result<(Option<Service>, Vec<Pod>), String> {
    if !matches!(to, Target::Service { .. }) {
        return Ok((None, Vec::new()));
    }
    let name = ObjectName { namespace: DNS.0.to_owned(), name: DNS.1.to_owned() };
    let why = |error: anyhow::Error| format!("the cluster's DNS not read: {}", chain(error.as_ref()));
    let Some(service) = get::<Service>(&namespaced(client, &name), &name, "Service").await.map_err(why)? else {
        return Ok((None, Vec::new()));
    };
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let pods = match selector.is_empty() {
        true => Vec::new(),
        false => {
            let params = ListParams::default().labels_from(&Selector::from_iter(selector));
            listed(namespaced(client, &name), params, "Pods of the cluster's DNS").await?
        }
    };
    Ok((Some(service), pods))
}

/// Kinds that exist and have objects, or whose objects may not be listed.
async fn other_policies(client: &Client) -> Result<Vec<OtherPolicies>, String> {
    let why = |error: kube::Error| format!("kinds of policies of other programs not read: {}", chain(&error));
    let groups = client.list_api_groups().await.map_err(why)?.groups;
    let mut found = Vec::new();
    for (group, kinds) in OTHER_KINDS {
        let Some(known) = groups.iter().find(|known| known.name == group) else { continue };
        let version = known.preferred_version.as_ref().or_else(|| known.versions.first());
        let Some(version) = version.map(|version| version.version.clone()) else { continue };
        let resources = client.list_api_group_resources(&format!("{group}/{version}")).await.map_err(why)?;
        for resource in
            resources.resources.iter().filter(|one| kinds.contains(&one.kind.as_str()) && !one.name.contains('/'))
        {
            let kind = GroupVersionKind::gvk(group, &version, &resource.kind);
            let api: Api<DynamicObject> =
                Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, &resource.name));
            let has_objects = api.list(&ListParams::default().limit(1)).await.ok().map(|page| !page.items.is_empty());
            if has_objects != Some(false) {
                found.push(OtherPolicies { kind: format!("{} ({group})", resource.kind), has_objects });
            }
        }
    }
    Ok(found)
}
