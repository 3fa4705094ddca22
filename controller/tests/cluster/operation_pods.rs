//! Pods of operations on a real API server, with real tokens: which ones the controller, an administrator and a user with a verb may
//! create. What is not exactly such a Pod is refused to all of them.

use api::NodeTask;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, ServiceAccount, wait_until};
use serde_json::{Value, json};

use crate::probe_pods::assert_forbidden;
use crate::scene::manifest;

const NAMESPACE: &str = "oke-node-tasks";
const UID: &str = "00000000-0000-4000-8000-000000000001";

/// A change of a Pod.
type Change = fn(&mut Value);

/// An API server with the policies, and a client per user.
struct Cluster {
    _server: ApiServer,
    controller: Api<Pod>,
    administrator: Api<Pod>,
    admin: Client,
    /// Has the verbs `restart-unit` and `capture` only.
    operator: Api<Pod>,
    user: Api<Pod>,
}

impl Cluster {
    async fn start() -> Self {
        let server = ApiServer::start().unwrap();
        for file in [
            "namespace.yaml",
            "crds.yaml",
            "admission.yaml",
            "controller.yaml",
            "probe-pods.yaml",
            "../operations/operation-pods.yaml",
        ] {
            server.apply(&manifest(file)).await.unwrap();
        }
        let admin = server.client(server.admin()).unwrap();
        enable(&admin, &["TASKS", "HOST_FILES", "HOST_CODE"]).await;
        // Kubernetes' own controller would count.
        let quotas: Api<ResourceQuota> = Api::namespaced(admin.clone(), NAMESPACE);
        let counted = json!({ "status": { "hard": { "pods": "100" }, "used": { "pods": "0" } } });
        quotas.patch_status("oke-node-task", &PatchParams::default(), &Patch::Merge(counted)).await.unwrap();
        let pods = |client: &Client| Api::namespaced(client.clone(), NAMESPACE);
        let of = async |account: &ServiceAccount| {
            let token = server.token(account, &Bound::Nothing).await.unwrap();
            pods(&server.client(&token).unwrap())
        };
        let controller = of(&ServiceAccount::new("oke-node-manager", "oke-node-controller")).await;
        server.create_account(&ServiceAccount::new(NAMESPACE, "default")).await.unwrap();
        let (operator, user) = (ServiceAccount::new("default", "operator"), ServiceAccount::new("default", "user"));
        for (role, group, resource, verb) in [
            ("may-create-pods", "", "pods", "create"),
            ("may-restart", "oke.oraclecloud.com", "nodetasks", "restart-unit"),
            ("may-capture", "oke.oraclecloud.com", "nodetasks", "capture"),
        ] {
            let rules = json!([{ "apiGroups": [group], "resources": [resource], "verbs": [verb] }]);
            let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": role }, "rules": rules });
            server.apply_object(role).await.unwrap();
        }
        for account in [&operator, &user] {
            server.create_account(account).await.unwrap();
            bind(&server, account, "may-create-pods").await;
        }
        bind(&server, &operator, "may-restart").await;
        bind(&server, &operator, "may-capture").await;
        let (operator, user) = (of(&operator).await, of(&user).await);
        Self { controller, administrator: pods(&admin), admin, operator, user, _server: server }
    }
}

/// The variables of the controller's Deployment that are on, as components set them.
async fn enable(admin: &Client, variables: &[&str]) {
    let deployments: Api<Deployment> = Api::namespaced(admin.clone(), "oke-node-manager");
    let mut deployment = deployments.get("oke-node-controller").await.unwrap();
    let container = &mut deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0];
    let env = container.env.get_or_insert_default();
    env.retain(|variable| !["TASKS", "HOST_FILES", "HOST_CODE"].contains(&variable.name.as_str()));
    for name in variables {
        env.push(serde_json::from_value(json!({ "name": name, "value": "on" })).unwrap());
    }
    deployments.replace("oke-node-controller", &PostParams::default(), &deployment).await.unwrap();
}

async fn bind(server: &ApiServer, account: &ServiceAccount, role: &str) {
    server
        .apply_object(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("{}-{role}", account.name) },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account.name, "namespace": account.namespace }] }))
        .await
        .unwrap();
}

/// The Pod that the controller creates, changed.
fn pod(change: Change) -> Pod {
    changed(include_str!("../../golden/operation/pod.json"), change)
}

/// The Pod that applies files, changed.
fn files(change: Change) -> Pod {
    changed(include_str!("../../golden/operation/files.json"), change)
}

fn changed(pod: &str, change: Change) -> Pod {
    let mut value: Value = serde_json::from_str(pod).unwrap();
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

/// The Pod that captures logs, changed.
fn logs(change: Change) -> Pod {
    changed(include_str!("../../golden/operation/logs.json"), change)
}

async fn create(pods: &Api<Pod>, pod: &Pod) -> kube::Result<()> {
    pods.create(&PostParams::default(), pod).await.map(drop)
}

fn grow(pod: &mut Value) {
    pod["spec"]["containers"][0]["args"] = json!(["operation", "grow-root-disk"]);
    pod["spec"]["activeDeadlineSeconds"] = json!(600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_pod_of_an_operation_is_admitted_and_only_with_its_verb() {
    let cluster = Cluster::start().await;
    wait_until("the policies are in force", async || {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let refused = cluster.administrator.create(&dry_run, &pod(|pod| pod["spec"]["hostPID"] = json!(true))).await;
        matches!(refused, Err(kube::Error::Api(status)) if status.message.contains("oke-node-task-pods"))
    })
    .await;
    for pod in [pod(|_| ()), pod(grow), logs(|_| ())] {
        for pods in [&cluster.controller, &cluster.administrator] {
            create(pods, &pod).await.unwrap();
            pods.delete(pod.metadata.name.as_deref().unwrap(), &DeleteParams::default().grace_period(0)).await.unwrap();
        }
    }
    // Each verb is for its action.
    let needs = ["needs the action's verb on nodetasks"];
    assert_forbidden(create(&cluster.user, &pod(|_| ())).await, "restart without a verb", &needs);
    assert_forbidden(create(&cluster.user, &pod(grow)).await, "grow without a verb", &needs);
    assert_forbidden(create(&cluster.operator, &pod(grow)).await, "grow with the verb restart-unit", &needs);
    assert_forbidden(create(&cluster.user, &logs(|_| ())).await, "logs without a verb", &needs);
    create(&cluster.operator, &pod(|_| ())).await.unwrap();

    let changed = changes().into_iter().map(|(name, change)| (name, pod(change)));
    let changed_logs = changes_of_logs().into_iter().map(|(name, change)| (name, logs(change)));
    for (name, pod) in changed.chain(changed_logs) {
        for pods in [&cluster.controller, &cluster.administrator, &cluster.operator] {
            // Kubernetes itself refuses a mirror Pod with an account.
            let refusals = ["'oke-node-task-pods' with binding", "a mirror pod may not reference"];
            assert_forbidden(create(pods, &pod).await, name, &refusals);
        }
    }
    nothing_of_an_admitted_pod_changes(&cluster).await;
    only_the_pod_of_files_is_admitted(&cluster).await;
    grants_of_the_cluster_bound_the_pod_of_files(&cluster).await;
}

async fn only_the_pod_of_files_is_admitted(cluster: &Cluster) {
    let needs = ["only the controller applies files"];
    for pods in [&cluster.administrator, &cluster.operator, &cluster.user] {
        assert_forbidden(create(pods, &files(|_| ())).await, "files by a user", &needs);
    }
    let of_tasks = changes().into_iter().filter(|(name, _)| !OF_TASKS_ONLY.contains(name));
    for (name, change) in of_tasks.chain(changes_of_files()) {
        let refusals = ["'oke-node-task-pods' with binding", "a mirror pod may not reference"];
        assert_forbidden(create(&cluster.controller, &files(change)).await, &format!("files: {name}"), &refusals);
    }
    let pod = files(|_| ());
    create(&cluster.controller, &pod).await.unwrap();
    let name = pod.metadata.name.as_deref().unwrap();
    cluster.controller.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

/// One grant: its arguments and its folders, and no others. Without tasks, no Pod of tasks.
async fn grants_of_the_cluster_bound_the_pod_of_files(cluster: &Cluster) {
    enable(&cluster.admin, &["HOST_FILES"]).await;
    let is_refused = |result: kube::Result<()>| matches!(result, Err(kube::Error::Api(status)) if status.code == 403);
    // The policy reads the Deployment from a watch.
    wait_until("the policy knows the grant", async || is_refused(create(&cluster.controller, &pod(|_| ())).await))
        .await;
    let off = ["the controller's setting TASKS is off"];
    assert_forbidden(create(&cluster.administrator, &pod(|_| ())).await, "restart without TASKS", &off);
    assert!(is_refused(create(&cluster.controller, &files(|_| ())).await), "both grants");
    let arguments_only: Change = |pod| {
        pod["spec"]["containers"][0]["args"].as_array_mut().unwrap().truncate(6);
    };
    assert!(is_refused(create(&cluster.controller, &files(arguments_only)).await), "folders of both grants");
    create(&cluster.controller, &files(without_code)).await.unwrap();
    enable(&cluster.admin, &["TASKS"]).await;
    wait_until("no grant, no Pod", async || is_refused(create(&cluster.controller, &files(without_code)).await)).await;
}

/// As if only HOST_FILES were on.
fn without_code(pod: &mut Value) {
    let code = ["containerd", "crio", "kubernetes", "modprobe", "systemd", "udev"].map(|name| format!("etc-{name}"));
    let is_granted = |it: &Value| !code.iter().any(|start| it["name"].as_str().unwrap().starts_with(start));
    pod["spec"]["containers"][0]["args"].as_array_mut().unwrap().truncate(6);
    pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap().retain(is_granted);
    pod["spec"]["volumes"].as_array_mut().unwrap().retain(is_granted);
}

/// Of [`changes`], what is about a task's arguments and owner.
const OF_TASKS_ONLY: [&str; 5] = ["unit", "owner's kind", "owner's uid", "controlling owner", "no owner"];

fn changes_of_files() -> Vec<(&'static str, Change)> {
    vec![
        ("hash", |pod| pod["spec"]["containers"][0]["args"][3] = json!("0".repeat(64))),
        ("short hash", |pod| pod["spec"]["containers"][0]["args"][3] = json!("0123456789abcdef")),
        ("no hash", |pod| pod["spec"]["containers"][0]["args"] = json!(["operation", "apply-files"])),
        ("no grants", |pod| pod["spec"]["containers"][0]["args"].as_array_mut().unwrap().truncate(4)),
        ("one grant", |pod| pod["spec"]["containers"][0]["args"].as_array_mut().unwrap().truncate(6)),
        ("another root", |pod| {
            pod["spec"]["containers"][0]["args"].as_array_mut().unwrap().push(json!("--root=/"));
        }),
        ("folder missing", |pod| {
            pod["spec"]["volumes"].as_array_mut().unwrap().pop();
            pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap().pop();
        }),
        ("another folder", |pod| pod["spec"]["volumes"][2]["hostPath"]["path"] = json!("/etc/ssh")),
        ("whole folder", |pod| pod["spec"]["volumes"][2]["hostPath"]["path"] = json!("/etc")),
        ("another place", |pod| {
            pod["spec"]["containers"][0]["volumeMounts"][2]["mountPath"] = json!("/etc");
        }),
        ("sub-path", |pod| pod["spec"]["containers"][0]["volumeMounts"][2]["subPath"] = json!("a")),
        ("records elsewhere", |pod| pod["spec"]["volumes"][1]["hostPath"]["path"] = json!("/root")),
        ("name of another order", |pod| pod["metadata"]["name"] = json!("files-04c3b593-0000000000000000")),
        ("an owner", |pod| {
            pod["metadata"]["ownerReferences"] = json!([
                { "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy", "name": "a", "uid": UID },
            ]);
        }),
    ]
}

async fn nothing_of_an_admitted_pod_changes(cluster: &Cluster) {
    let name = pod(|_| ()).metadata.name.unwrap();
    let patches = [
        ("image", json!({ "spec": { "containers": [{ "name": "operation", "image": "busybox" }] } })),
        ("deadline", json!({ "spec": { "activeDeadlineSeconds": 1 } })),
        ("label", json!({ "metadata": { "labels": { "app": "cart" } } })),
        ("finalizer", json!({ "metadata": { "finalizers": ["example.com/kept"] } })),
        ("interfaces", json!({ "metadata": { "annotations": { "oke.oraclecloud.com/interfaces": "storage" } } })),
    ];
    for (what, patch) in patches {
        let changed = cluster.administrator.patch(&name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        assert_forbidden(changed.map(drop), what, &["must not be changed"]);
    }
    let debugger = json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": "busybox" }] } });
    let debugged = cluster
        .administrator
        .patch_ephemeral_containers(&name, &PatchParams::default(), &Patch::Strategic(debugger))
        .await;
    assert_forbidden(debugged.map(drop), "ephemeral container", &["must not be changed"]);
    for subresource in ["exec?command=id&stdout=true", "attach?stdout=true", "portforward"] {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/{subresource}");
        let request = hyper::Request::post(path).body(Vec::new()).unwrap();
        let connected = cluster.administrator.clone().into_client().request_text(request).await.map(drop);
        assert_forbidden(connected, subresource, &["connections to an operation's Pod are refused"]);
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn changes() -> Vec<(&'static str, Change)> {
    vec![
        ("image", |pod| pod["spec"]["containers"][0]["image"] = json!("busybox")),
        ("command", |pod| pod["spec"]["containers"][0]["command"] = json!(["/bin/sh"])),
        ("no command", |pod| pod["spec"]["containers"][0]["command"] = json!(null)),
        ("program's command", |pod| pod["spec"]["containers"][0]["args"] = json!(["run"])),
        ("unit", |pod| pod["spec"]["containers"][0]["args"][2] = json!("sshd.service")),
        ("further argument", |pod| {
            pod["spec"]["containers"][0]["args"] =
                json!(["operation", "restart-unit", "crio.service", "--message=/run/dbus/x"]);
        }),
        ("option first", |pod| {
            pod["spec"]["containers"][0]["args"] = json!(["operation", "--bus=/x", "grow-root-disk"])
        }),
        ("no arguments", |pod| pod["spec"]["containers"][0]["args"] = json!([])),
        ("container's name", |pod| pod["spec"]["containers"][0]["name"] = json!("other")),
        ("variable", |pod| pod["spec"]["containers"][0]["env"] = json!([{ "name": "LD_PRELOAD", "value": "x" }])),
        ("env-from", |pod| pod["spec"]["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "a" } }])),
        ("port", |pod| pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80 }])),
        ("liveness", |pod| {
            pod["spec"]["containers"][0]["livenessProbe"] = json!({ "exec": { "command": ["/bin/sh"] } })
        }),
        ("lifecycle", |pod| {
            pod["spec"]["containers"][0]["lifecycle"] = json!({ "postStart": { "exec": { "command": ["a"] } } })
        }),
        ("working folder", |pod| pod["spec"]["containers"][0]["workingDir"] = json!("/run/dbus")),
        ("message path", |pod| pod["spec"]["containers"][0]["terminationMessagePath"] = json!("/etc/passwd")),
        ("message policy", |pod| {
            pod["spec"]["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        }),
        ("pull policy", |pod| pod["spec"]["containers"][0]["imagePullPolicy"] = json!("Always")),
        ("stdin", |pod| pod["spec"]["containers"][0]["stdin"] = json!(true)),
        ("terminal", |pod| pod["spec"]["containers"][0]["tty"] = json!(true)),
        ("capability", |pod| {
            pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = json!(["SYS_ADMIN"]);
        }),
        ("kept capabilities", |pod| pod["spec"]["containers"][0]["securityContext"]["capabilities"] = json!({})),
        ("privileged", |pod| {
            pod["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
        }),
        ("escalation", |pod| pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true)),
        ("writable root", |pod| {
            pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = json!(false)
        }),
        ("unmasked proc", |pod| {
            pod["spec"]["hostUsers"] = json!(false);
            pod["spec"]["containers"][0]["securityContext"]["procMount"] = json!("Unmasked");
        }),
        ("own user", |pod| pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = json!(65532)),
        ("cpu", |pod| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("64")),
        ("memory", |pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("64Gi")),
        ("no resources", |pod| pod["spec"]["containers"][0]["resources"] = json!(null)),
        ("writable mount", |pod| pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] = json!(false)),
        ("mount path", |pod| pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] = json!("/mnt")),
        ("propagation", |pod| {
            pod["spec"]["containers"][0]["volumeMounts"][0]["mountPropagation"] = json!("HostToContainer");
        }),
        ("folder of the host", |pod| pod["spec"]["volumes"][0]["hostPath"]["path"] = json!("/")),
        ("file of the host", |pod| {
            pod["spec"]["volumes"][0]["hostPath"] = json!({ "path": "/run/dbus/system_bus_socket", "type": "Socket" });
        }),
        ("created folder", |pod| pod["spec"]["volumes"][0]["hostPath"]["type"] = json!("DirectoryOrCreate")),
        ("second volume", |pod| {
            pod["spec"]["volumes"].as_array_mut().unwrap().push(json!({ "name": "a", "emptyDir": {} }));
        }),
        ("second container", |pod| {
            let mut second = pod["spec"]["containers"][0].clone();
            second["name"] = json!("second");
            pod["spec"]["containers"].as_array_mut().unwrap().push(second);
        }),
        ("init container", |pod| pod["spec"]["initContainers"] = json!([{ "name": "a", "image": "oke-node-manager" }])),
        ("user", |pod| pod["spec"]["securityContext"]["runAsUser"] = json!(65532)),
        ("group", |pod| pod["spec"]["securityContext"]["runAsGroup"] = json!(1)),
        ("groups", |pod| pod["spec"]["securityContext"]["supplementalGroups"] = json!([1])),
        ("seccomp", |pod| pod["spec"]["securityContext"]["seccompProfile"]["type"] = json!("Unconfined")),
        ("selinux", |pod| pod["spec"]["securityContext"]["seLinuxOptions"]["type"] = json!("container_t")),
        ("sysctl", |pod| {
            pod["spec"]["securityContext"]["sysctls"] = json!([{ "name": "net.ipv4.ip_forward", "value": "1" }])
        }),
        ("host network", |pod| pod["spec"]["hostNetwork"] = json!(true)),
        ("host processes", |pod| pod["spec"]["hostPID"] = json!(true)),
        ("host ipc", |pod| pod["spec"]["hostIPC"] = json!(true)),
        ("user namespace", |pod| pod["spec"]["hostUsers"] = json!(false)),
        ("shared processes", |pod| pod["spec"]["shareProcessNamespace"] = json!(true)),
        ("host name", |pod| pod["spec"]["hostname"] = json!("a")),
        ("alias", |pod| pod["spec"]["hostAliases"] = json!([{ "ip": "10.0.0.1", "hostnames": ["a"] }])),
        ("dns", |pod| pod["spec"]["dnsPolicy"] = json!("ClusterFirst")),
        ("selector", |pod| pod["spec"]["nodeSelector"] = json!({ "a": "b" })),
        ("no node", |pod| pod["spec"]["nodeName"] = json!(null)),
        ("restart policy", |pod| pod["spec"]["restartPolicy"] = json!("Always")),
        ("no deadline", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(null)),
        ("long deadline", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(600)),
        ("grace", |pod| pod["spec"]["terminationGracePeriodSeconds"] = json!(30)),
        ("token", |pod| pod["spec"]["automountServiceAccountToken"] = json!(true)),
        ("account", |pod| pod["spec"]["serviceAccountName"] = json!("default")),
        ("links", |pod| pod["spec"]["enableServiceLinks"] = json!(true)),
        ("class", |pod| pod["spec"]["priorityClassName"] = json!("system-cluster-critical")),
        ("tolerations", |pod| pod["spec"]["tolerations"] = json!([])),
        ("scheduler", |pod| pod["spec"]["schedulerName"] = json!("other")),
        ("pull secret", |pod| pod["spec"]["imagePullSecrets"] = json!([{ "name": "a" }])),
        ("label", |pod| pod["metadata"]["labels"]["app"] = json!("cart")),
        ("no label", |pod| pod["metadata"]["labels"] = json!(null)),
        ("annotation", |pod| pod["metadata"]["annotations"] = json!({ "a": "b" })),
        ("mirror Pod", |pod| pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "a" })),
        ("finalizer", |pod| pod["metadata"]["finalizers"] = json!(["example.com/kept"])),
        ("no owner", |pod| pod["metadata"]["ownerReferences"] = json!(null)),
        ("owner's kind", |pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("NodePolicy")),
        ("owner's uid", |pod| {
            pod["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-4000-8000-000000000002")
        }),
        ("controlling owner", |pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(true)),
        ("name", |pod| pod["metadata"]["name"] = json!("restart")),
        ("name of another task", |pod| {
            pod["metadata"]["name"] = json!("00000000-0000-4000-8000-000000000002-00000000")
        }),
        ("generated name", |pod| pod["metadata"]["generateName"] = json!(UID)),
    ]
}

/// Changes of what only a Pod for logs has.
fn changes_of_logs() -> Vec<(&'static str, Change)> {
    fn args(pod: &mut Value) -> &mut Vec<Value> {
        pod["spec"]["containers"][0]["args"].as_array_mut().unwrap()
    }
    vec![
        ("no units", |pod| args(pod).truncate(3)),
        ("no hours", |pod| args(pod).retain(|arg| arg != "--hours=1")),
        ("25 hours", |pod| args(pod)[2] = json!("--hours=25")),
        ("another folder", |pod| args(pod).insert(3, json!("--folder=/run/dbus"))),
        ("nine units", |pod| args(pod).extend((0..7).map(|number| json!(format!("a{number}.service"))))),
        ("all units", |pod| args(pod)[3] = json!("*.service")),
        ("no unit", |pod| args(pod)[3] = json!("kubelet")),
        ("two units in one", |pod| args(pod)[3] = json!("kubelet.service sshd.service")),
        ("unit on two lines", |pod| args(pod)[3] = json!("kubelet.service\nsshd.service")),
        ("long unit", |pod| args(pod)[3] = json!(format!("{}.service", "a".repeat(58)))),
        ("time of a restart", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(120)),
        ("restart with the folder", |pod| {
            pod["spec"]["containers"][0]["args"] = json!(["operation", "restart-unit", "kubelet.service"]);
            pod["spec"]["activeDeadlineSeconds"] = json!(120);
        }),
        ("all captures", |pod| pod["spec"]["volumes"][1]["hostPath"]["path"] = json!("/var/lib/vcn-native/captures")),
        ("another capture", |pod| {
            let path = "/var/lib/vcn-native/captures/00000000-0000-4000-8000-000000000002/logs";
            pod["spec"]["volumes"][1]["hostPath"]["path"] = json!(path);
        }),
        ("created folder", |pod| pod["spec"]["volumes"][1]["hostPath"]["type"] = json!("DirectoryOrCreate")),
        ("another mount", |pod| pod["spec"]["containers"][0]["volumeMounts"][1]["mountPath"] = json!("/usr/local/bin")),
        ("read-only folder", |pod| pod["spec"]["containers"][0]["volumeMounts"][1]["readOnly"] = json!(true)),
        ("sub-folder", |pod| pod["spec"]["containers"][0]["volumeMounts"][1]["subPath"] = json!("a")),
        ("no bus", |pod| {
            pod["spec"]["volumes"].as_array_mut().unwrap().remove(0);
            pod["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap().remove(0);
        }),
    ]
}

/// With the rights of the manifests only, as the leader creates the task of a NodePolicy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_creates_growths_of_policies_and_no_other_task() {
    let server = ApiServer::start().unwrap();
    for file in ["namespace.yaml", "crds.yaml", "admission.yaml", "controller.yaml", "../tasks/roles.yaml"] {
        server.apply(&manifest(file)).await.unwrap();
    }
    let account = ServiceAccount::new("oke-node-manager", "oke-node-controller");
    let token = server.token(&account, &Bound::Nothing).await.unwrap();
    let tasks: Api<NodeTask> = Api::all(server.client(&token).unwrap());
    let task = |name: &str, action: Value| -> NodeTask {
        let owner =
            json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy", "name": "disks", "uid": UID });
        let spec = json!({ "node": "a", "action": action, "ttlSecondsAfterFinished": 86_400 });
        let task = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask",
            "metadata": { "name": name, "ownerReferences": [owner] }, "spec": spec });
        serde_json::from_value(task).unwrap()
    };
    let create = async |name: &str, action| tasks.create(&PostParams::default(), &task(name, action)).await.map(drop);
    wait_until("the role is in force", async || create("grow-disks-1", json!({ "growRootDisk": {} })).await.is_ok())
        .await;
    for (name, action) in
        [("restart", json!({ "restartUnit": { "unit": "crio.service" } })), ("reboot", json!({ "reboot": {} }))]
    {
        let needs = [format!("needs the verb \"{name}")];
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        wait_until("the policy is in force", async || {
            let refused = create(name, action.clone()).await;
            if refused.is_ok() {
                tasks.delete(name, &DeleteParams::default()).await.ok();
            }
            refused.is_err()
        })
        .await;
        assert_forbidden(create(name, action).await, name, &needs);
    }
}
