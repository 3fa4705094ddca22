//! The commands of docs/tutorial.md, docs/pilot.md, docs/upgrade.md, docs/node-policies.md and docs/node-tasks.md, run one by one. An API server without kubelets runs no pod: in place of `rollout status` and
//! `exec`, the object must exist, and the program must know its arguments.

use std::fs;
use std::process::Command;

use kube_harness::{ApiServer, Assets};
use tests::built::bin_dir;

use super::chart::tools;
use super::root;

struct Cluster {
    /// Runs as long as this exists.
    _server: ApiServer,
    kubeconfig: String,
}

impl Cluster {
    fn start() -> Self {
        let server = ApiServer::start().unwrap();
        let path = server.folder().join("chart.kubeconfig");
        server.write_kubeconfig(server.admin(), &path).unwrap();
        Self { _server: server, kubeconfig: path.display().to_string() }
    }
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The page's commands in their order; one with a here-document has several lines.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands: Vec<String> = Vec::new();
    let mut inside = false;
    for line in blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty()) {
        if inside {
            let last = commands.last_mut().unwrap();
            last.push('\n');
            last.push_str(line);
            inside = line.trim() != "END";
        } else {
            commands.push(line.trim_start().to_owned());
            inside = line.ends_with("<<END");
        }
    }
    commands
}

fn run(cluster: &Cluster, command: &str) {
    let kubectl = Assets::find().unwrap().program("kubectl");
    let path = format!("{}:{}:/usr/bin:/bin", kubectl.parent().unwrap().display(), tools().display());
    let mut shell = Command::new("sh");
    shell.args(["-ec", command]).current_dir(root()).env_clear().env("PATH", path).env("HOME", "/nonexistent");
    let output = shell.env("KUBECONFIG", &cluster.kubeconfig).output().unwrap();
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn each_command_of_the_tutorial_works() {
    // Helm does not take over what kubectl applied.
    let (cluster, of_helm) = (Cluster::start(), Cluster::start());
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: 10.0.0.2}\n";
    run(&cluster, &format!("kubectl apply -f - <<END\n{node}END"));
    let (page, uninstall) = (page("tutorial.md"), page("uninstall.md"));
    let commands = commands(&page);
    for command in &commands {
        if let Some((before, program)) = command.split_once(" -- oke-node-agent ") {
            run(&cluster, &before.replace(" exec ", " get "));
            run(&cluster, &format!("{} {program} --help", bin_dir().join("oke-node-agent").display()));
        } else if command.starts_with("helm ") {
            run(&of_helm, command);
        } else {
            run(&cluster, &command.replace(" rollout status ", " get "));
        }
    }
    let uninstall = uninstall.split('`').find(|text| text.starts_with("helm uninstall ")).unwrap();
    run(&of_helm, uninstall);
    let kept = "namespace/oke-node-manager crd/vnicattachments.oke.oraclecloud.com";
    run(&of_helm, &format!("kubectl get {kept}"));
    let in_text: Vec<&str> = page.split('`').filter(|text| text.starts_with("kubectl ")).collect();
    assert!(in_text.len() > 1, "{in_text:?}");
    for command in in_text {
        run(&cluster, command);
    }
    for way in ["kubectl apply --server-side -k manifests/overlays/", "helm upgrade --install "] {
        assert_eq!(
            commands.iter().filter(|command| command.starts_with(way)).count(),
            3,
            "each kind of cluster: {way}"
        );
    }
}

/// A Node without pods is in place of each. `make cluster` runs the steps on real nodes.
#[test]
fn each_command_of_the_pilot_page_works() {
    let (cluster, of_helm) = (Cluster::start(), Cluster::start());
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: 10.0.0.2}\n";
    run(&cluster, &format!("kubectl apply -f - <<END\n{node}END"));
    let commands = commands(&page("pilot.md"));
    assert!(commands.len() > 25, "{commands:?}");
    let help =
        |program: &str, verb: &str| run(&cluster, &format!("{} {verb} --help", bin_dir().join(program).display()));
    for command in &commands {
        if let Some(arguments) = command.strip_prefix("kubectl oke-node ") {
            help("kubectl-oke_node", arguments);
        } else if let Some((_, verb)) = command.split_once(" exec POD -- oke-node-agent ") {
            help("oke-node-agent", verb);
        } else if command.starts_with("helm ") {
            run(&of_helm, command);
        } else {
            let single =
                command.strip_prefix("until ").map_or(command.as_str(), |rest| rest.split(';').next().unwrap());
            let single = single
                .replace(" wait --for=condition=Ready --timeout=5m ", " get ")
                .replace(" rollout status ", " get ");
            run(&cluster, &single.replace(" drain ", " drain --dry-run=server ").replace("NODE", "10.0.0.2"));
        }
    }
    // A drained node without it stays out of use.
    let place = |part: &str| commands.iter().filter(|command| command.contains(part)).count();
    assert_eq!((place("kubectl drain "), place("kubectl uncordon ")), (3, 3));
}

/// Without a controller: the objects and the switch are real, `policy` shows the object's status. `make e2e` has the rollout on real nodes.
#[test]
fn each_command_of_the_node_policies_page_works() {
    let cluster = Cluster::start();
    run(&cluster, "kubectl apply --server-side -k manifests/base");
    run(&cluster, "kubectl apply -f - <<END\napiVersion: v1\nkind: Node\nmetadata: {name: 10.0.0.2}\nEND");
    let commands = commands(&page("node-policies.md"));
    assert!(commands.len() > 9, "{commands:?}");
    let is_of_policies = |command: &&String| !command.contains("oke-node-agent ");
    for command in commands.iter().filter(is_of_policies) {
        match command.strip_prefix("kubectl oke-node ") {
            Some(arguments) => {
                let program = bin_dir().join("kubectl-oke_node").display().to_string();
                // The exit status of `policy` is 1 without a controller.
                let is_shown = if arguments.starts_with("policy ") { " | grep 'policy  *web'" } else { "" };
                run(&cluster, &format!("{program} {arguments}{is_shown}"));
            }
            None => run(&cluster, &unindented(command)),
        }
    }
}

/// Without a controller: the chart, roles, objects and the switch are real, and the commands create real tasks. `make e2e` has the actions.
#[test]
fn each_command_of_the_node_tasks_page_works() {
    let cluster = Cluster::start();
    run(&cluster, "kubectl apply -f - <<END\napiVersion: v1\nkind: Node\nmetadata: {name: 10.0.0.2}\nEND");
    let commands = commands(&page("node-tasks.md"));
    assert!(commands.len() > 12, "{commands:?}");
    let program = bin_dir().join("kubectl-oke_node").display().to_string();
    for command in &commands {
        match command.strip_prefix("kubectl oke-node ") {
            Some(arguments) => run(&cluster, &format!("{program} {arguments}")),
            // The controller finishes it; the admission policy applies a moment after the chart.
            None => run(&cluster, &command.replace(" wait --for=condition=Complete --timeout=1h ", " get ")),
        }
        if command.contains("--no-wait") {
            run(
                &cluster,
                "kubectl get nodetasks -o name | grep -c . && kubectl get nodetasks -o yaml | grep created-by",
            );
        }
    }
    run(&cluster, "test $(kubectl get nodetasks -o name | wc -l) = 0");
}

/// A here-document of a list's item, whose lines are indented by its width.
fn unindented(command: &str) -> String {
    command.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The image's program is the built one; the overlay is the flannel one.
#[test]
fn each_command_of_the_upgrade_page_works() {
    let (cluster, folder) = (Cluster::start(), tempfile::tempdir().unwrap());
    let file = folder.path().join("agent.conf").display().to_string();
    run(&cluster, "kubectl apply --server-side -k manifests/overlays/oke-flannel");
    let commands = commands(&page("upgrade.md"));
    assert_eq!(commands.len(), 5, "{commands:?}");
    for command in &commands {
        let program = bin_dir().join("oke-node-agent").display().to_string();
        if let Some((_, arguments)) = command.split_once("/usr/local/bin/oke-node-agent IMAGE ") {
            run(&cluster, &format!("{program} {}", arguments.replace("/agent.conf", &file)));
        } else {
            let command = command.replace("> agent.conf", &format!("> {file}")).replace(" rollout status ", " get ");
            run(&cluster, &command.replace("/KIND", "/oke-flannel"));
        }
    }
    assert!(fs::read_to_string(&file).unwrap().contains("HOST_NETWORKING"), "the file was read from the ConfigMap");
}
