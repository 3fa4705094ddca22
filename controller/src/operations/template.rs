//! The Pod of an operation. The policy in manifests/operations/operation-pods.yaml refuses every other Pod.

use std::time::Duration;

use api::node_policy::{HOST_FOLDERS, SYSTEMD_FOLDER};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tunables::files::FileGrant;

/// The namespace of the Pods, as in manifests/operations/operation-pods.yaml.
pub(crate) const NAMESPACE: &str = "oke-node-tasks";
/// The name of their account, and their label.
const NAME: &str = "oke-node-task";
/// The name of their container.
pub(super) const CONTAINER: &str = "operation";
/// Where records and copies of files are, on the host and in the container.
const DATA: &str = "/var/lib/vcn-native/files";
/// Where agents keep captures.
const CAPTURES: &str = "/var/lib/vcn-native/captures";
/// Where the host's folders are in the container.
const ROOT: &str = "/host";

#[derive(Clone, Debug)]
pub(crate) struct OperationPod<'a> {
    pub name: &'a str,
    pub node: &'a str,
    pub purpose: PodPurpose<'a>,
    /// The arguments of the program.
    pub arguments: &'a [&'a str],
    /// How long it may run: longer than the program's own limits together.
    pub limit: Duration,
}

/// The purpose of a Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PodPurpose<'a> {
    /// A NodeTask, by name and uid.
    Task { name: &'a str, uid: &'a str },
    /// The same, with the folder of logs that the agent keeps for the task's capture.
    Logs { name: &'a str, uid: &'a str },
    /// The files of the node's policies, in the folders of these grants.
    Files(&'a [FileGrant]),
}

impl OperationPod<'_> {
    pub(crate) fn object(&self, image: &str) -> serde_json::Result<Pod> {
        let mut owners = json!(null);
        // The socket can be used although the mount is read-only.
        let mut volumes = vec![json!({ "name": "bus", "hostPath": { "path": "/run/dbus", "type": "Directory" } })];
        let mut mounts = vec![json!({ "name": "bus", "mountPath": "/run/dbus", "readOnly": true })];
        // If the task is deleted before it ends, the Pod is deleted, too.
        let owner = |name: &str, uid: &str| json!([{ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "name": name, "uid": uid }]);
        match self.purpose {
            PodPurpose::Task { name, uid } => owners = owner(name, uid),
            PodPurpose::Logs { name, uid } => {
                owners = owner(name, uid);
                let path = format!("{CAPTURES}/{uid}/logs");
                volumes.push(json!({ "name": "logs", "hostPath": { "path": path, "type": "Directory" } }));
                mounts.push(json!({ "name": "logs", "mountPath": "/logs" }));
            }
            PodPurpose::Files(grants) => {
                let data = ("data".to_owned(), DATA.to_owned(), DATA.to_owned());
                let folders = folders(grants).map(|path| (volume_name(path), path.to_owned(), format!("{ROOT}{path}")));
                for (name, path, at) in std::iter::once(data).chain(folders) {
                    volumes.push(json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } }));
                    mounts.push(json!({ "name": name, "mountPath": at }));
                }
            }
        }
        let metadata = json!({
            "name": self.name,
            "labels": { "app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "oke-node-manager" },
            "ownerReferences": owners,
        });
        serde_json::from_value(json!({ "metadata": metadata, "spec": self.spec(image, &volumes, &mounts) }))
    }

    fn spec(&self, image: &str, volumes: &[Value], mounts: &[Value]) -> Value {
        json!({
            "nodeName": self.node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": self.limit.as_secs(),
            "terminationGracePeriodSeconds": 0,
            "serviceAccountName": NAME,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "dnsPolicy": "Default",
            // A kubelet without disk space admits no other Pod.
            "priorityClassName": "system-node-critical",
            "tolerations": [{ "operator": "Exists" }],
            "securityContext": {
                "runAsUser": 0, "runAsGroup": 0, "seccompProfile": { "type": "RuntimeDefault" },
                // Under SELinux container_t may not connect to the bus.
                "seLinuxOptions": { "type": "spc_t" },
            },
            "volumes": volumes,
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/oke-node-agent"],
                "args": self.arguments,
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": mounts,
            }],
        })
    }
}

/// The host's folders that these grants permit: hostFiles first, as in the policy.
fn folders(grants: &[FileGrant]) -> impl Iterator<Item = &'static str> {
    grants.iter().flat_map(|grant| {
        let mut paths: Vec<&str> =
            HOST_FOLDERS.iter().filter(|folder| folder.grant == *grant).map(|folder| folder.path).collect();
        if *grant == FileGrant::HostCode {
            paths.push(SYSTEMD_FOLDER);
        }
        paths.sort_unstable();
        paths
    })
}

/// The name of a folder's volume: `/etc/chrony.d` is `etc-chrony-d`.
fn volume_name(path: &str) -> String {
    path.trim_start_matches('/').to_ascii_lowercase().replace(['/', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of the policies on an API server begin with this file.
    #[test]
    fn pod_of_files_is_the_one_that_other_tests_change() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/operation/files.json");
        let sha256 = "0123456789abcdef".repeat(4);
        let arguments =
            ["operation", "apply-files", "--sha256", &sha256, "--grant", "hostFiles", "--grant", "hostCode"];
        let pod = OperationPod {
            name: "files-04c3b593-0123456789abcdef",
            node: "node-a",
            purpose: PodPurpose::Files(&[FileGrant::HostFiles, FileGrant::HostCode]),
            arguments: &arguments,
            limit: Duration::from_secs(300),
        };
        let text = serde_json::to_string_pretty(&pod.object("oke-node-manager").unwrap()).unwrap() + "\n";
        assert_eq!(documents::compare_file(std::path::Path::new(path), &text), Ok(()));
    }

    #[test]
    fn pod_mounts_only_folders_of_its_grants() {
        let of_files: Vec<&str> = folders(&[FileGrant::HostFiles]).collect();
        assert!(of_files.contains(&"/etc/sysctl.d") && !of_files.contains(&"/etc/udev/rules.d"));
        let of_code: Vec<&str> = folders(&[FileGrant::HostCode]).collect();
        assert!(of_code.contains(&SYSTEMD_FOLDER) && !of_code.contains(&"/etc/sysctl.d"));
        assert_eq!(folders(&[]).count(), 0);
    }
}
