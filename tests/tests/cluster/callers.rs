//! Programs of other projects that call our plugins: cnitool, the CNI project's own caller with its libcni, in chains with reference
//! plugins; Multus; and Podman with its CNI backend.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use host_harness::{Families, path_of, reaches, sh, vnic_pool};
use ipam::{BootId, Pools, Store};
use kube_harness::{ApiServer, ServiceAccount};
use netlink::Netns;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::built::bin_dir;

use crate::DEADLINE;
use crate::manifests::tools;
use crate::vnics_on_request::forward;
use crate::vnics_on_request::multi_homed_pods::{definition, multus};

const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Of Debian's package containernetworking-plugins.
const REFERENCE: &str = "/usr/lib/cni";

/// A host with one VNIC, whose router is a namespace too, and a pod.
struct World {
    host: Netns,
    router: Netns,
    pod: Netns,
    /// State of the plugins, configurations, and what libcni caches.
    folder: TempDir,
}

fn text(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

impl World {
    fn new(list: &Value) -> Self {
        let [host, router, pod] = std::array::from_fn(|_| Netns::create().unwrap());
        let world = Self { host, router, pod, folder: tempfile::tempdir().unwrap() };
        sh(
            &world.host,
            &format!(
                "ip link set lo up; echo 1 >/proc/sys/net/ipv4/ip_forward
                 ip rule add pref 512 lookup 999 suppress_prefixlength 31 proto 157
                 ip link add ens5 type veth peer name port; ip link set port netns {}; ip link set ens5 up
                 ip addr add 10.0.0.2/32 dev ens5; ip route add 10.0.0.1 dev ens5; ip route add default via 10.0.0.1 dev ens5
                 ip route add 10.0.0.1 dev ens5 table 1001; ip route add default via 10.0.0.1 dev ens5 table 1001",
                path_of(&world.router).display()
            ),
        );
        sh(&world.router, "ip link set lo up; ip link set port up; ip addr add 10.0.0.1/24 dev port");
        sh(&world.pod, "ip link set lo up");
        for folder in ["state", "net.d", "lib"] {
            fs::create_dir(world.folder.path().join(folder)).unwrap();
        }
        world.configure(list);
        let pool = vnic_pool(0, Families::V4, ["10.0.N.8/29", "2001:db8:N::8/125"]);
        Pools::new(BootId::current().unwrap(), vec![pool], None).write(&world.folder.path().join("state")).unwrap();
        world
    }

    fn configure(&self, list: &Value) {
        fs::write(self.folder.path().join("net.d/10-test.conflist"), list.to_string()).unwrap();
    }

    fn cnitool(&self, verb: &str) -> Output {
        self.cnitool_with(verb, "")
    }

    /// With more in CNI_ARGS. cnitool keeps its cache in /var/lib/cni, and no flag moves it: it gets a /var/lib of its own.
    fn cnitool_with(&self, verb: &str, args: &str) -> Output {
        let (own, pod) = (self.folder.path().display(), path_of(&self.pod).display().to_string());
        let tool = tools().join("cnitool").display().to_string();
        let command = format!("mount --bind {own}/lib /var/lib; exec {tool} {verb} test {pod}");
        let run = || {
            Command::new("unshare")
                .args(["--mount", "sh", "-ec", &command])
                .env("NETCONFPATH", self.folder.path().join("net.d"))
                .env(
                    "CNI_PATH",
                    format!("{}:{REFERENCE}:{}", bin_dir().display(), multus().parent().unwrap().display()),
                )
                .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web{args}"))
                .env("CAP_ARGS", capabilities())
                .env(attachment::STATE_DIR_VARIABLE, self.folder.path().join("state"))
                .output()
                .unwrap()
        };
        self.host.run(run).unwrap()
    }

    /// Links, routes, rules and NAT of the host.
    fn traces(&self) -> String {
        sh(
            &self.host,
            "ip -o link | sed 's/ state .*//'; ip rule; ip -4 route show table all; nft list ruleset | grep 8080 || true",
        )
    }

    fn held(&self) -> usize {
        let store = Store::new(&self.folder.path().join("state"), BootId::current().unwrap());
        store.read().unwrap().allocations.len()
    }
}

/// What a runtime passes to plugins that declare it: a host port, and the annotation of a pod that cannot have what it requests.
fn capabilities() -> String {
    let port = json!({ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" });
    json!({ "portMappings": [port], ANNOTATIONS: { vcn::INTERFACES_ANNOTATION: "nowhere@net1" } }).to_string()
}

fn list(version: &str, plugins: &[Value]) -> Value {
    json!({ "cniVersion": version, "name": "test", "plugins": plugins })
}

#[test]
fn requested_mac_is_set_by_tuning_or_refused() {
    let (tuning, mac) = (json!({ "type": "tuning" }), ";MAC=02:00:00:00:00:99");
    let world = World::new(&list("1.0.0", &[json!({ "type": "vcn-native" }), tuning.clone()]));
    let refused = String::from_utf8(world.cnitool_with("add", mac).stderr).unwrap();
    assert!(refused.contains("MAC of CNI_ARGS is") && refused.contains("02:00:00:00:00:99"), "{refused}");
    world.configure(&list("1.0.0", &[json!({ "type": "vcn-native", "tuning": true }), tuning]));
    text(world.cnitool_with("add", mac));
    assert!(sh(&world.pod, "ip link show eth0").contains("link/ether 02:00:00:00:00:99"));
    text(world.cnitool_with("check", mac));
    text(world.cnitool_with("del", mac));
}

#[test]
fn cnitool_runs_a_chain_with_reference_plugins() {
    let rate = 80_000_000;
    let plugins = [
        json!({ "type": "vcn-native" }),
        json!({ "type": "portmap", "capabilities": { "portMappings": true }, "snat": true }),
        json!({ "type": "bandwidth", "ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate }),
        json!({ "type": "tuning", "sysctl": { "net.core.somaxconn": "500" }, "mac": "02:00:00:00:00:99", "mtu": 1300,
            "promisc": true }),
        json!({ "type": "vnic-attach" }),
    ];
    // 1.0.0 is the newest that Debian's plugins know.
    for version in ["0.4.0", "1.0.0"] {
        let world = World::new(&list(version, &plugins));
        let before = world.traces();
        let result: Value = serde_json::from_str(&text(world.cnitool("add"))).unwrap();
        assert_eq!(result["cniVersion"], version);
        assert!(result["ips"][0]["address"].as_str().unwrap().starts_with("10.0.0."), "{result}");
        assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:99", "tuning changed the pod's link");
        assert!(reaches(&world.pod, "10.0.0.1"));
        assert!(sh(&world.pod, "cat /proc/sys/net/core/somaxconn").starts_with("500"));
        assert!(world.traces().contains("8080") || sh(&world.host, "iptables-save -t nat").contains("8080"));
        // portmap 1.1.1 expects the rules of one family among the other's, too, so its CHECK never passes.
        let checked: Vec<Value> = plugins.iter().filter(|plugin| plugin["type"] != "portmap").cloned().collect();
        world.configure(&list(version, &checked));
        text(world.cnitool("check"));
        world.configure(&list(version, &plugins));
        assert_eq!(world.held(), 1);
        for _ in 0..2 {
            text(world.cnitool("del"));
        }
        assert_eq!((world.held(), world.traces()), (0, before), "{version}");
    }
}

#[test]
fn cnitool_gets_status_and_no_gc_without_a_list() {
    let world = World::new(&list("1.1.0", &[json!({ "type": "vcn-native" }), json!({ "type": "vnic-attach" })]));
    text(world.cnitool("status"));
    text(world.cnitool("add"));
    text(world.cnitool("check"));
    // libcni first deletes what it cached. Then it sends no list of valid attachments, which must not mean that none is valid.
    let gc = world.cnitool("gc");
    assert!(String::from_utf8_lossy(&gc.stderr).contains("refused, because it would remove every attachment"));
    assert_eq!(world.held(), 0);
    fs::remove_file(world.folder.path().join("state/pools.json")).unwrap();
    let refused = world.cnitool("status");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("has not published pod addresses yet"), "{said}");
    let failed = world.cnitool("add");
    assert!(!failed.status.success() && String::from_utf8_lossy(&failed.stderr).contains("failed (add)"));
}

/// docs/multi-homed-pods.md: with Multus the annotation has no effect. Without Multus the same chain refuses the pod.
#[test]
fn multus_passes_no_annotations_of_pods_to_vnic_attach() {
    let capabilities = json!({ ANNOTATIONS: true });
    let chained = json!({ "type": "vnic-attach", "capabilities": capabilities });
    let network = list("1.0.0", &[json!({ "type": "vcn-native" }), chained]);
    let world = World::new(&network);
    let refused = String::from_utf8(world.cnitool("add").stderr).unwrap();
    assert!(refused.contains("this node has no VNIC named nowhere"), "{refused}");
    text(world.cnitool("del"));
    world.configure(&list(
        "1.0.0",
        &[json!({ "type": multus().file_name().unwrap().to_str(), "cniDir": "/var/lib/multus",
            "capabilities": capabilities, "delegates": [network] })],
    ));
    text(world.cnitool("add"));
    assert_eq!(world.held(), 1);
    text(world.cnitool("del"));
}

/// As on a cluster whose runtime calls Multus; without an API server, so that no pod requests more networks.
#[test]
fn multus_calls_vcn_native_as_its_default_network() {
    let plugins = [json!({ "type": "vcn-native" }), json!({ "type": "vnic-attach" })];
    let network = list("1.0.0", &plugins);
    let multus =
        json!({ "type": multus().file_name().unwrap().to_str(), "cniDir": "/var/lib/multus", "delegates": [network] });
    let world = World::new(&list("1.0.0", &[multus]));
    let before = world.traces();
    for _ in 0..2 {
        let result: Value = serde_json::from_str(&text(world.cnitool("add"))).unwrap();
        assert!(result["ips"][0]["address"].as_str().unwrap().starts_with("10.0.0."), "{result}");
        assert!(reaches(&world.pod, "10.0.0.1"));
        assert_eq!(world.held(), 1);
        text(world.cnitool("del"));
        assert_eq!((world.held(), world.traces()), (0, before.clone()));
    }
}

/// As on a cluster whose runtime calls Multus, with a pod network of the reference plugin ptp. The pod names the
/// NetworkAttachmentDefinition of vcn-native.
async fn world_of_pod(server: &ApiServer, annotations: &Value, ptp_routes: &Value) -> World {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [{ "name": "web", "image": "web" }] },
        "metadata": { "name": "web", "namespace": "default", "annotations": annotations } });
    server.apply_object(pod).await.unwrap();
    let world = World::new(&json!({}));
    let addresses = json!([{ "address": "10.99.0.2/24", "gateway": "10.99.0.1" }]);
    let kubeconfig = world.folder.path().join("kubeconfig");
    server.write_kubeconfig(server.admin(), &kubeconfig).unwrap();
    let ptp = json!({ "cniVersion": "1.0.0", "name": "network", "type": "ptp",
        "ipam": { "type": "static", "addresses": addresses, "routes": ptp_routes } });
    let multus = json!({ "type": multus().file_name().unwrap().to_str(), "cniDir": "/var/lib/multus",
        "delegates": [ptp], "kubeconfig": kubeconfig });
    world.configure(&list("1.0.0", &[multus]));
    let (host, port) = server.service();
    let address = format!("{host}:{port}");
    forward(world.host.run(|| TcpListener::bind(&address)).unwrap().unwrap(), address);
    world
}

#[tokio::test]
async fn multus_calls_vcn_native_by_a_network_attachment_definition() {
    let server = ApiServer::start().unwrap();
    server.apply_object(definition()).await.unwrap();
    server.create_account(&ServiceAccount::new("default", "default")).await.unwrap();
    let config = json!({ "cniVersion": "1.0.0", "name": "vcn", "type": "vcn-native" }).to_string();
    let vcn = json!({ "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "vcn", "namespace": "default" }, "spec": { "config": config } });
    server.apply_object(vcn).await.unwrap();

    let additional = json!({ "k8s.v1.cni.cncf.io/networks": "vcn" });
    let instead = json!({ "v1.multus-cni.io/default-network": "default/vcn" });
    let (none, default_route) = (json!([]), json!([{ "dst": "0.0.0.0/0" }]));
    for (annotations, ptp_routes, interface) in [(&additional, &none, "net1"), (&instead, &default_route, "eth0")] {
        let world = world_of_pod(&server, annotations, ptp_routes).await;
        let before = world.traces();
        text(world.cnitool("add"));
        assert!(sh(&world.pod, "ip route get 10.0.0.1").contains(&format!("dev {interface} src 10.0.0.")));
        assert!(reaches(&world.pod, "10.0.0.1"));
        assert_eq!(world.held(), 1);
        text(world.cnitool("del"));
        assert_eq!((world.held(), world.traces()), (0, before));
    }

    let world = world_of_pod(&server, &additional, &default_route).await;
    let before = world.traces();
    let refused = String::from_utf8(world.cnitool("add").stderr).unwrap();
    for part in ["another interface of the pod has the default route", "additional networks", "vnic-attach"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!((world.held(), world.traces()), (0, before), "Multus has removed both interfaces");
    text(world.cnitool("del"));
}

const OCI_IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/oci-image");

/// What Podman 4 needs to run a container on our network, with files and locks below one folder.
fn podman_settings(folder: &str) -> String {
    format!(
        "[network]
         network_backend = \"cni\"
         cni_plugin_dirs = [\"{}\", \"{REFERENCE}\"]
         network_config_dir = \"{folder}/net.d\"
         default_network = \"test\"
         [engine]
         cgroup_manager = \"cgroupfs\"
         runtime = \"runc\"
         events_logger = \"none\"
         lock_type = \"file\"\n",
        bin_dir().display()
    )
}

#[test]
fn podman_starts_a_container_on_our_network() {
    let plugins =
        [json!({ "type": "vcn-native" }), json!({ "type": "portmap", "capabilities": { "portMappings": true } })];
    let world = World::new(&list("1.0.0", &plugins));
    let folder = world.folder.path().display().to_string();
    fs::write(world.folder.path().join("containers.conf"), podman_settings(&folder)).unwrap();
    // A process of its own, without our environment, cleans up: the state is where it is on a node. Its cgroups are below one of our own, which goes with the test.
    let group = world.folder.path().file_name().unwrap().to_str().unwrap().replace('.', "oke-test-");
    let script = format!(
        "mount --bind {folder}/lib /var/lib; mkdir -p /run/vcn-native; mount --bind {folder}/state /run/vcn-native
         podman='podman --root {folder}/store --runroot {folder}/runroot --storage-driver vfs'
         {OCI_IMAGE} {folder}/image.tar localhost/test:1 /bin/busybox=$(command -v busybox) -- /bin/busybox
         $podman load --quiet --input {folder}/image.tar >&2
         $podman run --rm --network test --publish 8080:80 --cgroup-parent /{group} localhost/test:1 nc -w 20 10.0.0.1 7000
         for try in 1 2 3 4 5; do
            find /sys/fs/cgroup/*/{group} -depth -type d -exec rmdir {{}} + 2>/dev/null || true
            [ -z \"$(find /sys/fs/cgroup -maxdepth 2 -name {group})\" ] && exit
            sleep 1
         done; echo 'cgroups are left'"
    );
    let listener = world.router.run(|| TcpListener::bind("10.0.0.1:7000").unwrap()).unwrap();
    let server = thread::spawn(move || {
        let (mut connection, peer) = listener.accept().unwrap();
        connection.write_all(b"here").unwrap();
        peer.ip().to_string()
    });
    let run = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", &script]);
        command.env("CONTAINERS_CONF", world.folder.path().join("containers.conf")).output().unwrap()
    };
    let answer = text(world.host.run(run).unwrap());
    assert_eq!(answer, "here");
    assert!(server.join().unwrap().starts_with("10.0.0."), "by its own address");
    let deadline = Instant::now() + DEADLINE;
    while world.held() > 0 {
        assert!(Instant::now() < deadline, "no DEL");
        thread::sleep(Duration::from_millis(50));
    }
}
