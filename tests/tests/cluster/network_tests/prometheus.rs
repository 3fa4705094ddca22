//! A real Prometheus scrapes agents and controller as `docs/alerts.md` configures it, by mutual TLS, and evaluates the shipped alert
//! rules and dashboard.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use kube_harness::wait_for;
use sandbox::Node;
use serde_json::{Value, json};

use super::{CERTIFICATES, CONTROL, NODES, Scene};
use crate::manifests::tools;
use crate::root;

const RULES: &str = "manifests/observability/alerts.yaml";
const WITHOUT_CERTIFICATE: &str = "without certificate";

struct Prometheus {
    node: Arc<Node>,
    process: Child,
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `ca.crt`, and `tls.crt` with `tls.key` of the servers, which Prometheus uses, too.
fn write_certificates(folder: &Path) {
    let request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    let ca = format!("{request} -keyout ca.key -out ca.crt -subj /CN=ca");
    let own = "-addext subjectAltName=DNS:oke-node-manager -addext basicConstraints=critical,CA:FALSE";
    let tls =
        format!("{request} -CA ca.crt -CAkey ca.key -keyout tls.key -out tls.crt -subj /CN=oke-node-manager {own}");
    run(Command::new("sh").args(["-ec", &format!("{ca}; {tls}")]).current_dir(folder));
}

/// The page's configuration outside the cluster, once with a client's certificate and once without.
fn configuration(scene: &Scene) -> Value {
    let page = fs::read_to_string(root().join("docs/alerts.md")).unwrap();
    let block = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let mut all: Value = serde_yaml_ng::from_str(block).unwrap();
    all["global"] = json!({ "scrape_interval": "1s", "evaluation_interval": "1s" });
    all["rule_files"] = json!([root().join(RULES)]);
    let certificate = |name: &str| scene.folder.path().join(CERTIFICATES).join(name);
    let mut job = all["scrape_configs"][0].take();
    job["kubernetes_sd_configs"][0]["kubeconfig_file"] = json!(scene.folder.path().join("kubeconfig"));
    job["scheme"] = json!("https");
    job["tls_config"] = json!({ "server_name": "oke-node-manager", "ca_file": certificate("ca.crt") });
    let mut without = job.clone();
    without["job_name"] = json!(WITHOUT_CERTIFICATE);
    for (key, file) in [("cert_file", "tls.crt"), ("key_file", "tls.key")] {
        job["tls_config"][key] = json!(certificate(file));
    }
    all["scrape_configs"] = json!([job, without]);
    all
}

impl Prometheus {
    fn start(scene: &Scene) -> Self {
        let (node, folder) = (scene.vcn.node(CONTROL).unwrap(), scene.folder.path());
        let file = folder.join("prometheus.yml");
        fs::write(&file, configuration(scene).to_string()).unwrap();
        let process = node
            .command(tools().join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg("--web.listen-address=127.0.0.1:9090")
            .stdin(Stdio::null())
            .stderr(fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn()
            .unwrap();
        Self { node, process }
    }

    /// The `data` of an answer of its API, if it answers.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let query = query.iter().flat_map(|(name, value)| ["--data-urlencode".to_owned(), format!("{name}={value}")]);
        let curl = self.node.command("curl").args(["--silent", "--get"]).args(query);
        let curl = curl.arg(format!("http://127.0.0.1:9090/api/v1/{path}"));
        let answer: Value = serde_json::from_slice(&curl.output().unwrap().stdout).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        Some(self.get("query", &[("query", expression)])?["result"].as_array().unwrap().clone())
    }

    /// How many targets of a job are in this state, with this cause.
    fn targets(&self, job: &str, health: &str, cause: &str) -> usize {
        let all = self.get("targets", &[]).unwrap_or_default();
        let matches = |target: &&Value| {
            let error = target["lastError"].as_str().unwrap();
            target["labels"]["job"] == job && target["health"] == health && error.contains(cause)
        };
        all["activeTargets"].as_array().map_or(0, |targets| targets.iter().filter(matches).count())
    }

    /// The state of each alert, when all rules have been evaluated without an error.
    fn alerts(&self) -> Option<Vec<(String, String)>> {
        let groups = self.get("rules", &[])?["groups"].as_array().unwrap().clone();
        let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
        let text = |rule: &Value, field: &str| rule[field].as_str().unwrap().to_owned();
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
        let evaluated = !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok");
        evaluated.then(|| rules.iter().map(|rule| (text(rule, "name"), text(rule, "state"))).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn state(alerts: &[(String, String)], name: &str) -> String {
    alerts.iter().find(|(alert, _)| alert == name).unwrap().1.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_by_mutual_tls_and_evaluates_the_alerts() {
    run(Command::new(tools().join("promtool"))
        .args(["check", "rules", "--lint=all", "--lint-fatal"])
        .arg(root().join(RULES)));
    let mut scene = Scene::new().await;
    write_certificates(&scene.folder.path().join(CERTIFICATES));
    let prometheus = Prometheus::start(&scene);
    let job = "oke-node-manager";
    wait_for("all are scraped", async || (prometheus.targets(job, "up", "") == NODES.len()).then_some(())).await;
    let refused = || prometheus.targets(WITHOUT_CERTIFICATE, "down", "tls: certificate required");
    wait_for("clients without a certificate are refused", async || (refused() == NODES.len()).then_some(())).await;
    let one_leads = async || (prometheus.query("sum(oke_node_controller_leads) == 1")?.len() == 1).then_some(());
    wait_for("the controller leads", one_leads).await;
    assert_eq!(prometheus.query("oke_node_agent_ready").unwrap().len(), NODES.len() - 1);

    let no_alert = async || {
        let alerts = prometheus.alerts()?;
        let quiet = |name| state(&alerts, name) == "inactive";
        (quiet("OkeNodeAgentsAbsent") && quiet("OkeControllerNoLeader")).then_some(())
    };
    wait_for("the alerts are evaluated", no_alert).await;
    let dashboard = fs::read_to_string(root().join("manifests/observability/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    for target in
        dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array()).flatten()
    {
        prometheus.query(target["expr"].as_str().unwrap()).unwrap();
    }

    for (_, agent) in scene.agents.drain(..) {
        agent.stop().unwrap();
    }
    let pending = async || (state(&prometheus.alerts()?, "OkeNodeAgentsAbsent") == "pending").then_some(());
    wait_for("the absence of agents is noticed", pending).await;
}
