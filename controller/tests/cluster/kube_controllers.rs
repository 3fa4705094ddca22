//! Plays those Kubernetes controllers that uninstalling depends on (namespaces, DaemonSets, Deployments, their pods), because the
//! API server of these tests has no controller manager, scheduler or kubelet. A PodDisruptionBudget without a status, as here,
//! allows no eviction.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec, Node, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

const NAMESPACE: &str = "oke-node-manager";
const PROBES: &str = "oke-node-manager-probes";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Runs until it is dropped. A conflict is solved in the next round.
pub(crate) async fn play(client: Client) {
    loop {
        let _ = round(&client).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn round(client: &Client) -> kube::Result<()> {
    end_namespace(client).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?.items;
    let (sets_there, deployments_there) = (sets.list(&all).await?.items, deployments.list(&all).await?.items);
    let there = pods.list(&all).await?.items;
    // The garbage collector.
    let owners: Vec<_> =
        sets_there.iter().map(|it| it.uid()).chain(deployments_there.iter().map(|it| it.uid())).collect();
    for pod in there.iter().filter(|pod| !owners.contains(&owner(pod))) {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    for set in sets_there {
        let template = &set.spec.as_ref().unwrap().template;
        for node in &nodes {
            ensure(&pods, &there, &set, template, node).await?;
        }
        let number = nodes.len();
        let status = json!({ "status": { "observedGeneration": set.metadata.generation, "desiredNumberScheduled": number,
            "currentNumberScheduled": number, "updatedNumberScheduled": number, "numberAvailable": number,
            "numberReady": number, "numberMisscheduled": 0 } });
        sets.patch_status(&set.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    for deployment in deployments_there {
        let template = &deployment.spec.as_ref().unwrap().template;
        // If no two replicas may share a node, and there are as many nodes as replicas.
        let open = |node: &&Node| node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true));
        for node in nodes.iter().filter(open) {
            ensure(&pods, &there, &deployment, template, node).await?;
        }
    }
    Ok(())
}

/// The namespace controller. It also deletes the namespace's content, which is our own ConfigMaps and Lease here.
async fn end_namespace(client: &Client) -> kube::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in [NAMESPACE, PROBES] {
        let found = namespaces.get_opt(name).await?;
        if let Some(mut namespace) = found.filter(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            namespace.spec = Some(NamespaceSpec::default());
            namespaces.replace_subresource("finalize", name, &PostParams::default(), &namespace).await?;
        }
    }
    Ok(())
}

fn owner(pod: &Pod) -> Option<String> {
    pod.owner_references().first().map(|owner| owner.uid.clone())
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// One pod of a template on a node, ready at once. It also ends at once, as with a quick kubelet.
async fn ensure<K>(pods: &Api<Pod>, there: &[Pod], of: &K, template: &PodTemplateSpec, node: &Node) -> kube::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let node = node.name_any();
    let found = there.iter().find(|pod| owner(pod) == of.uid() && node_of(pod) == Some(node.as_str()));
    if found.is_some_and(is_ready) {
        return Ok(());
    }
    let reference: OwnerReference = of.controller_owner_ref(&()).unwrap();
    let account = template.spec.as_ref().unwrap().service_account_name.clone();
    let pod = json!({
        "metadata": { "generateName": format!("{}-", of.name_any()), "ownerReferences": [reference],
            "labels": template.metadata.as_ref().unwrap().labels },
        "spec": { "nodeName": node, "serviceAccountName": account, "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0, "containers": [{ "name": "one", "image": "one" }] },
    });
    let pod = match found {
        Some(found) => found.clone(),
        None => pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await?,
    };
    let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(ready)).await.map(drop)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}
