//! What a DaemonSet says about its container. Everything that would widen what the container can do and is not emulated
//! is refused, so that tests never run with less than a cluster would give and think that it was the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::{Container, Volume};

/// Its user and group are root's, as ours are here.
const ROOT: i64 = 0;

/// What the API server puts behind a DaemonSet's name to call a pod of it; any five of its characters.
const RANDOM: &str = "7k2xp";

/// The Node that every pod is on.
const NODE: &str = "node";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaemonSet {
    metadata: Named,
    spec: DaemonSetSpec,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
struct DaemonSetSpec {
    template: Template,
}

#[derive(Debug, Deserialize)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    host_network: bool,
    #[serde(default, rename = "hostPID")]
    host_pid: bool,
    #[serde(default, rename = "hostIPC")]
    host_ipc: bool,
    #[serde(default)]
    init_containers: Vec<ContainerSpec>,
    #[serde(default)]
    security_context: PodSecurity,
    containers: Vec<ContainerSpec>,
    #[serde(default)]
    volumes: Vec<VolumeSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSecurity {
    #[serde(default)]
    seccomp_profile: Option<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerSpec {
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    security_context: Security,
    #[serde(default)]
    volume_mounts: Vec<Mount>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    name: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    value_from: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Security {
    #[serde(default)]
    privileged: bool,
    allow_privilege_escalation: bool,
    read_only_root_filesystem: bool,
    run_as_user: i64,
    run_as_group: i64,
    capabilities: Capabilities,
    #[serde(default)]
    seccomp_profile: Option<Kind>,
}

#[derive(Debug, Deserialize)]
struct Capabilities {
    #[serde(default)]
    drop: Vec<String>,
    #[serde(default)]
    add: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    name: String,
    mount_path: PathBuf,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    sub_path: Option<String>,
    #[serde(default)]
    mount_propagation: Option<String>,
}

#[derive(Debug, Deserialize)]
struct VolumeSpec {
    name: String,
    /// By kind: hostPath and others.
    #[serde(flatten)]
    kinds: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct HostPath {
    path: PathBuf,
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigMap {
    name: String,
    #[serde(default)]
    optional: bool,
}

/// Which container of a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The only one.
    Only,
    /// The only one that runs before the others.
    Init,
    /// The only one that runs after those.
    Last,
}

#[derive(Debug, Deserialize)]
struct Projected {
    sources: Vec<BTreeMap<String, Value>>,
}

/// Reads the DaemonSet of a manifest, with patches of it, or says why it cannot be emulated.
pub(super) fn read(manifest: &str, patches: &[&str], which: Which) -> Result<Container, String> {
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

/// Kubernetes' strategic merge, as far as a patch of ours needs it: maps are merged, and lists of named things by name.
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

fn container(set: DaemonSet, which: Which) -> Result<Container, String> {
    let PodSpec { host_network, host_pid, host_ipc, init_containers, security_context, containers, volumes } =
        set.spec.template.spec;
    if which == Which::Only && !init_containers.is_empty() {
        return Err("it has init containers".into());
    }
    let all = if which == Which::Init { init_containers } else { containers };
    let [container] = <[ContainerSpec; 1]>::try_from(all).map_err(|all| format!("{} containers", all.len()))?;
    let ContainerSpec { command, args, env, security_context: security, volume_mounts } = container;
    // One that has nothing but a network: as root, which it is here, it can do no more.
    let powerless =
        security.capabilities.add.is_empty() && volume_mounts.is_empty() && security.read_only_root_filesystem;
    let as_root = security.run_as_user == ROOT && security.run_as_group == ROOT;
    for (refused, what) in [
        (!host_network, "a network of its own"),
        (host_pid, "hostPID"),
        (host_ipc, "hostIPC"),
        (security.privileged, "privileged"),
        (security.allow_privilege_escalation, "allowPrivilegeEscalation"),
        (!as_root && !powerless, "another user than root"),
        (security.capabilities.drop != ["ALL"], "capabilities that are not dropped"),
        (command.is_empty(), "the image's own command"),
    ] {
        if refused {
            return Err(format!("it has {what}"));
        }
    }
    let seccomp = security.seccomp_profile.or(security_context.seccomp_profile);
    let seccomp = match seccomp.as_ref().map(|profile| profile.kind.as_str()) {
        Some("RuntimeDefault") => true,
        None | Some("Unconfined") => false,
        Some(other) => return Err(format!("it has the seccomp profile {other}")),
    };
    let (mut of_host, mut config_maps, mut service_account) = (Vec::new(), BTreeMap::new(), None);
    for mount in volume_mounts {
        if is_service_account(&mount, &volumes)? {
            service_account = Some(mount.mount_path);
            continue;
        }
        match config_map(&mount, &volumes)? {
            Some(name) => drop(config_maps.insert(name, mount.mount_path)),
            None => of_host.push(mount),
        }
    }
    Ok(Container {
        command: command.into_iter().chain(args).collect(),
        environment: env.into_iter().map(|known| variable(known, &set.metadata.name)).collect::<Result<_, _>>()?,
        capabilities: security.capabilities.add,
        volumes: of_host.into_iter().map(|mount| volume(mount, &volumes)).collect::<Result<_, _>>()?,
        config_maps,
        service_account,
        read_only_root: security.read_only_root_filesystem,
        no_new_privileges: !security.allow_privilege_escalation,
        seccomp,
    })
}

/// A variable's value; of the downward API only the names of the pod and its node are emulated.
fn variable(Variable { name, value, value_from }: Variable, set: &str) -> Result<(String, String), String> {
    let field = value_from.as_ref().and_then(|from| from.get("fieldRef")).and_then(|field| field.get("fieldPath"));
    match (value, field.map(String::as_str)) {
        (Some(value), None) => Ok((name, value)),
        (None, Some("metadata.name")) => Ok((name, format!("{set}-{RANDOM}"))),
        (None, Some("spec.nodeName")) => Ok((name, NODE.to_owned())),
        _ => Err(format!("the variable {name} has neither a value nor is it the name of the pod or its node")),
    }
}

/// Whether a volume is what proves to the API server who the pod is, as every client library reads it.
fn is_service_account(mount: &Mount, volumes: &[VolumeSpec]) -> Result<bool, String> {
    let volume = volumes.iter().find(|volume| volume.name == mount.name);
    let Some(source) = volume.and_then(|volume| volume.kinds.get("projected")) else { return Ok(false) };
    let Projected { sources } =
        serde_yaml_ng::from_value(source.clone()).map_err(|error| format!("volume {}: {error}", mount.name))?;
    let kinds: Vec<&str> = sources.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
    match kinds == ["serviceAccountToken", "configMap", "downwardAPI"] && mount.read_only && mount.sub_path.is_none() {
        true => Ok(true),
        false => {
            Err(format!("volume {} projects something else than a service account, or may be written", mount.name))
        }
    }
}

/// The name of the ConfigMap that a volume is; one that must be there is not emulated, for here is none.
fn config_map(mount: &Mount, volumes: &[VolumeSpec]) -> Result<Option<String>, String> {
    let volume = volumes.iter().find(|volume| volume.name == mount.name);
    let Some(source) = volume.and_then(|volume| volume.kinds.get("configMap")) else { return Ok(None) };
    let ConfigMap { name, optional } =
        serde_yaml_ng::from_value(source.clone()).map_err(|error| format!("volume {}: {error}", mount.name))?;
    match optional && mount.read_only && mount.sub_path.is_none() {
        true => Ok(Some(name)),
        false => Err(format!("the ConfigMap {name} must be there, may be written, or is mounted with a subPath")),
    }
}

fn volume(mount: Mount, volumes: &[VolumeSpec]) -> Result<Volume, String> {
    let Mount { name, mount_path, read_only, sub_path, mount_propagation } = mount;
    if sub_path.is_some() || mount_propagation.is_some_and(|propagation| propagation != "None") {
        return Err(format!("volume {name} has a subPath or a mountPropagation"));
    }
    let volume = volumes.iter().find(|volume| volume.name == name).ok_or(format!("there is no volume {name}"))?;
    let host = volume.kinds.get("hostPath").ok_or(format!("volume {name} is no hostPath"))?;
    let HostPath { path, kind } = serde_yaml_ng::from_value(host.clone()).map_err(|error| error.to_string())?;
    let create = match kind.as_str() {
        "DirectoryOrCreate" => true,
        "Directory" => false,
        other => return Err(format!("volume {name} is of type {other:?}")),
    };
    Ok(Volume { host: path, mounted: mount_path, read_only, create })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::{NODE_AGENT, UNINSTALL};

    #[test]
    fn what_is_not_emulated_is_refused() {
        for (from, to, why) in [
            ("hostNetwork: true", "hostNetwork: false", "a network of its own"),
            ("hostNetwork: true", "hostPID: true\n      hostNetwork: true", "hostPID"),
            ("privileged: false", "privileged: true", "privileged"),
            ("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "allowPrivilegeEscalation"),
            (r#"drop: ["ALL"]"#, r#"drop: ["CHOWN"]"#, "capabilities"),
            ("runAsUser: 0", "runAsUser: 1000", "another user"),
            ("type: RuntimeDefault", "type: Localhost", "Localhost"),
            ("optional: true", "optional: false", "must be there"),
            ("- serviceAccountToken:", "- secret:", "something else than a service account"),
            ("name: sysctls, mountPath", "name: others, mountPath", "no volume others"),
            (
                "fieldPath: metadata.name }",
                "fieldPath: metadata.uid }",
                "neither a value nor is it the name of the pod",
            ),
            ("kind: DaemonSet", "kind: Deployment", "there is none"),
        ] {
            let changed = NODE_AGENT.replacen(from, to, 1);
            assert_ne!(changed, NODE_AGENT, "{from}");
            let error = read(&changed, &[], Which::Only).unwrap_err();
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn an_init_container_is_read_by_itself_only_where_it_is_asked_for() {
        assert_eq!(read(UNINSTALL, &[], Which::Only).unwrap_err(), "it has init containers");
        assert_eq!(read(NODE_AGENT, &[], Which::Init).unwrap_err(), "0 containers");
        for (which, word) in [(Which::Init, "uninstall"), (Which::Last, "idle")] {
            let container = read(UNINSTALL, &[], which).unwrap();
            assert_eq!(container.command, ["/usr/local/bin/oke-cni-installer", word]);
        }
    }

    #[test]
    fn another_user_than_root_is_emulated_only_where_nothing_can_be_done_as_either() {
        // The last of each is that container's.
        let changed = |from: &str, to: &str| {
            let (before, after) = UNINSTALL.rsplit_once(from).unwrap();
            format!("{before}{to}{after}")
        };
        for more in [
            changed(r#"drop: ["ALL"]"#, "drop: [\"ALL\"]\n              add: [NET_RAW]"),
            changed("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
            changed(
                "          resources:",
                "          volumeMounts: [{ name: state, mountPath: /run }]\n          resources:",
            ),
        ] {
            assert_eq!(read(&more, &[], Which::Last).unwrap_err(), "it has another user than root");
        }
    }
}
