//! Reads the container of a DaemonSet. A setting that would widen what the container can do and is not emulated is
//! refused, so that no test runs with less than a cluster gives.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Container as ContainerSpec, EnvVar, PodSpec, SeccompProfile, SecurityContext, Volume as VolumeSpec, VolumeMount,
};
use serde::Deserialize;
use serde_yaml_ng::Value;

use super::{Container, Volume};

/// The suffix that the API server gives the name of a DaemonSet's pod; any five of its characters.
const RANDOM: &str = "7k2xp";

/// The Node that every pod is on.
const NODE: &str = "node";

/// Which container of a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerChoice {
    Only,
    /// The only one that runs before the others.
    Init,
    /// The only one that runs after those.
    Last,
}

/// Reads the DaemonSet of a manifest with its patches, or returns why it cannot be emulated.
pub(super) fn read(manifest: &str, patches: &[&str], which: ContainerChoice) -> Result<Container, String> {
    let mut set = daemon_set(manifest)?;
    for patch in patches {
        merge(&mut set, daemon_set(patch)?);
    }
    let set: DaemonSet = serde_yaml_ng::from_value(set).map_err(|error| error.to_string())?;
    container(set, which)
}

fn daemon_set(manifest: &str) -> Result<Value, String> {
    let mut found = None;
    for document in serde_yaml_ng::Deserializer::from_str(manifest) {
        let document = Value::deserialize(document).map_err(|error| error.to_string())?;
        if document.get("kind").and_then(Value::as_str) == Some("DaemonSet") && found.replace(document).is_some() {
            return Err("there are two".into());
        }
    }
    found.ok_or_else(|| "there is none".into())
}

/// Kubernetes' strategic merge, as far as our patches need it: maps are merged, and lists of named items by name.
fn merge(base: &mut Value, patch: Value) {
    match (base, patch) {
        (Value::Mapping(base), Value::Mapping(patch)) => {
            for (key, value) in patch {
                match base.get_mut(&key) {
                    Some(below) => merge(below, value),
                    None => drop(base.insert(key, value)),
                }
            }
        }
        (Value::Sequence(base), Value::Sequence(patch)) if patch.iter().all(|item| item.get("name").is_some()) => {
            let mut new = Vec::new();
            for item in patch {
                match base.iter_mut().find(|known| known.get("name") == item.get("name")) {
                    Some(known) => merge(known, item),
                    None => new.push(item),
                }
            }
            // New items come first, as kustomize puts them.
            base.splice(0..0, new);
        }
        (base, patch) => *base = patch,
    }
}

fn container(set: DaemonSet, which: ContainerChoice) -> Result<Container, String> {
    let pod = set.spec.and_then(|spec| spec.template.spec).ok_or("it has no pod")?;
    if which == ContainerChoice::Only && pod.init_containers.as_ref().is_some_and(|all| !all.is_empty()) {
        return Err("it has init containers".into());
    }
    let is_init = which == ContainerChoice::Init;
    let all = if is_init { pod.init_containers.clone().unwrap_or_default() } else { pod.containers.clone() };
    let [container] = <[ContainerSpec; 1]>::try_from(all).map_err(|all| format!("{} containers", all.len()))?;
    let mounts = container.volume_mounts.unwrap_or_default();
    let security = container.security_context.ok_or("it has no securityContext")?;
    let capabilities = security.capabilities.clone().unwrap_or_default();
    let added = capabilities.add.unwrap_or_default();
    let read_only_root = security.read_only_root_filesystem == Some(true);
    // One that has nothing but a network: as root, which it is here, it can do no more.
    let is_unprivileged = added.is_empty() && mounts.is_empty() && read_only_root;
    let as_root = security.run_as_user == Some(0) && security.run_as_group == Some(0);
    for (refused, what) in [
        (pod.host_network != Some(true), "a network of its own"),
        (pod.host_pid == Some(true), "hostPID"),
        (pod.host_ipc == Some(true), "hostIPC"),
        (security.privileged == Some(true), "privileged"),
        (security.allow_privilege_escalation != Some(false), "allowPrivilegeEscalation"),
        (!as_root && !is_unprivileged, "another user than root"),
        (capabilities.drop.unwrap_or_default() != ["ALL"], "capabilities that are not dropped"),
        (container.command.is_none(), "the image's own command"),
    ] {
        if refused {
            return Err(format!("it has {what}"));
        }
    }
    let seccomp = seccomp(&pod, security)?;
    let volumes = pod.volumes.unwrap_or_default();
    let (mut of_host, mut config_maps, mut service_account) = (Vec::new(), BTreeMap::new(), None);
    for mount in mounts {
        let source = volumes.iter().find(|volume| volume.name == mount.name);
        let source = source.ok_or_else(|| format!("there is no volume {}", mount.name))?;
        if is_service_account(&mount, source)? {
            service_account = Some(mount.mount_path.into());
        } else if let Some(name) = config_map(&mount, source)? {
            config_maps.insert(name, mount.mount_path.into());
        } else {
            of_host.push(volume(mount, source)?);
        }
    }
    let set = set.metadata.name.unwrap_or_default();
    let command = container.command.into_iter().chain(container.args).flatten().collect();
    let environment = container.env.unwrap_or_default().into_iter().map(|known| variable(known, &set));
    Ok(Container {
        command,
        environment: environment.collect::<Result<_, _>>()?,
        capabilities: added,
        volumes: of_host,
        config_maps,
        service_account,
        read_only_root,
        seccomp,
    })
}

/// Whether the runtime's default profile applies; the container's setting outranks the pod's.
fn seccomp(pod: &PodSpec, security: SecurityContext) -> Result<bool, String> {
    let of_pod = || pod.security_context.as_ref()?.seccomp_profile.clone();
    match security.seccomp_profile.or_else(of_pod) {
        Some(SeccompProfile { type_, .. }) if type_ == "RuntimeDefault" => Ok(true),
        Some(SeccompProfile { type_, .. }) if type_ != "Unconfined" => {
            Err(format!("it has the seccomp profile {type_}"))
        }
        _ => Ok(false),
    }
}

/// A variable's value; of the downward API only the names of the pod and its node are emulated.
fn variable(EnvVar { name, value, value_from }: EnvVar, set: &str) -> Result<(String, String), String> {
    let field = value_from.and_then(|from| from.field_ref).map(|field| field.field_path);
    match (value, field.as_deref()) {
        (Some(value), None) => Ok((name, value)),
        (None, Some("metadata.name")) => Ok((name, format!("{set}-{RANDOM}"))),
        // The node's address is not known here; the agent takes an empty one as none.
        (None, Some("status.hostIP")) => Ok((name, String::new())),
        (None, Some("spec.nodeName")) => Ok((name, NODE.to_owned())),
        _ => Err(format!("the variable {name} has neither a value nor is it the name of the pod or its node")),
    }
}

fn is_plain(mount: &VolumeMount) -> bool {
    mount.read_only == Some(true) && mount.sub_path.is_none()
}

/// Whether a volume is the pod's service account, in the form that every client library reads.
fn is_service_account(mount: &VolumeMount, source: &VolumeSpec) -> Result<bool, String> {
    let Some(projected) = &source.projected else { return Ok(false) };
    let sources = projected.sources.iter().flatten();
    let kinds =
        sources.map(|of| [of.service_account_token.is_some(), of.config_map.is_some(), of.downward_api.is_some()]);
    match kinds.eq([[true, false, false], [false, true, false], [false, false, true]]) && is_plain(mount) {
        true => Ok(true),
        false => Err(format!("volume {} projects something else than a service account, or is writable", mount.name)),
    }
}

/// The name of the ConfigMap that a volume is; one that must exist is not emulated.
fn config_map(mount: &VolumeMount, source: &VolumeSpec) -> Result<Option<String>, String> {
    let Some(map) = &source.config_map else { return Ok(None) };
    let is_whole = map.optional == Some(true) && map.items.is_none() && map.default_mode.is_none();
    match is_whole && is_plain(mount) {
        true => Ok(Some(map.name.clone())),
        false => Err(format!("the ConfigMap {} must be there, is writable, or is mounted in part", map.name)),
    }
}

fn volume(mount: VolumeMount, source: &VolumeSpec) -> Result<Volume, String> {
    let VolumeMount { name, mount_path, read_only, sub_path, mount_propagation, .. } = mount;
    if sub_path.is_some() || mount_propagation.is_some_and(|propagation| propagation != "None") {
        return Err(format!("volume {name} has a subPath or a mountPropagation"));
    }
    let host = source.host_path.as_ref().ok_or(format!("volume {name} is not a hostPath"))?;
    let create = match host.type_.as_deref() {
        Some("DirectoryOrCreate") => true,
        Some("Directory") => false,
        other => return Err(format!("volume {name} is of type {other:?}")),
    };
    let (host, mounted) = (host.path.clone().into(), mount_path.into());
    Ok(Volume { host, mounted, read_only: read_only == Some(true), create })
}
