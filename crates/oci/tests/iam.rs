//! docs/iam.md names every call that the client can make, no other, and its policies allow what the calls need, no more.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use oci::{METADATA_URL, Region, RegionName};

const PAGE: &str = include_str!("../../../docs/iam.md");
const CLOUD: &str = include_str!("../src/cloud.rs");
const CALLS: [&str; 2] = [CLOUD, include_str!("../src/address.rs")];

const WORKLOAD: &str = include_str!("../src/auth/workload.rs");
const PROBE: &str = include_str!("../../nettest/src/probe.rs");
const AGENT: &str = include_str!("../../../daemon/src/args.rs");
const CONTROLLER: &str = include_str!("../../../controller/src/args.rs");
/// Each with the address that the program of that name listens on.
const MANIFESTS: [(&str, &str); 4] = [
    ("agent", include_str!("../../../manifests/base/daemonset.yaml")),
    ("controller", include_str!("../../../manifests/base/controller.yaml")),
    ("", include_str!("../../../manifests/uninstall/uninstall.yaml")),
    ("", include_str!("../../../manifests/overlays/oke-vcn-native/takeover.yaml")),
];

/// The permission that only tasks which reboot nodes need.
const RESTART: &str = "INSTANCE_POWER_ACTIONS";

type Words<'a> = BTreeSet<&'a str>;

/// The rows of the table of permissions, by columns.
fn rows() -> Vec<Vec<&'static str>> {
    let table = PAGE.split("| call |").nth(1).unwrap().split("\n\n").next().unwrap();
    let lines = table.lines().skip(2);
    lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>()[1..5].to_vec()).collect()
}

/// Words of capital letters, digits and `_`.
fn permissions(text: &str) -> Words<'_> {
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.contains('_')).collect()
}

fn column(number: usize) -> Words<'static> {
    let cells = rows().into_iter().flat_map(|row| row[number].split(',').collect::<Vec<_>>());
    cells.map(|word| word.trim().trim_matches('`')).filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_call_of_the_client_has_one_row() {
    let functions: Words<'_> =
        CLOUD.lines().filter_map(|line| line.trim().strip_prefix("pub async fn ")?.split('(').next()).collect();
    assert!(functions.len() >= 13, "{functions:?}");
    assert_eq!(column(0), functions);
}

#[test]
fn every_operation_of_the_api_has_one_row() {
    // Operations are the quoted words in CamelCase that begin with what is done.
    let quoted = CALLS.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
    let begins = ["Get", "List", "Create", "Delete", "Update", "Attach", "Detach", "Bulk", "InstanceAction"];
    let operations: Words<'_> = quoted.filter(|word| begins.iter().any(|verb| word.starts_with(verb))).collect();
    assert!(operations.len() >= 16, "{operations:?}");
    assert_eq!(column(1), operations);
}

/// A default value in a program's options.
fn default_of(options: &'static str, key: &str) -> &'static str {
    let after = options.split(&format!("env = \"{key}\"")).nth(1).unwrap();
    after.split("default_value = \"").nth(1).unwrap().split('"').next().unwrap()
}

#[test]
fn every_port_is_the_one_that_the_programs_use() {
    let table = PAGE.split("| from | to |").nth(1).unwrap().split("\n\n").next().unwrap();
    let row = |cells: [&str; 3]| {
        let [from, to, port] = cells;
        let is =
            |line: &&str| line.starts_with(&format!("| {from} | {to}")) && line.contains(&format!("| TCP {port} |"));
        assert_eq!(table.lines().filter(is).count(), 1, "{cells:?}");
    };
    let name = RegionName::new("us-ashburn-1").unwrap();
    let realm = name.realm().unwrap();
    let endpoints = Region::new(name, realm).endpoints();
    for (url, service) in [(endpoints.core, "iaas"), (endpoints.auth, "auth")] {
        assert_eq!(
            url.as_str(),
            format!("https://{service}.us-ashburn-1.oraclecloud.com"),
            "443, as of every https address"
        );
        row(["controller", &format!("`{service}.REGION.REALM`"), "443"]);
    }
    let proxymux = WORKLOAD.split("const PORT: u16 = ").nth(1).unwrap().split(';').next().unwrap();
    row(["controller", "the Kubernetes API endpoint", proxymux]);
    row(["controller", "the Kubernetes API endpoint", "6443"]);
    assert!(METADATA_URL.starts_with("http://169.254.169.254/"), "80, as of every http address");
    row(["agent, controller", "169.254.169.254", "80"]);
    let listen = [AGENT, CONTROLLER].map(|options| default_of(options, "LISTEN").split_once(':').unwrap());
    let [(_, agent), (_, controller)] = listen;
    row(["kubelet", listen[0].0, &format!("{agent} (agent), {controller} (controller)")]);
    let channel = AGENT.split("env = \"CHANNEL_PORT\", default_value_t = ").nth(1).unwrap().split(',').next().unwrap();
    row(["controller", "every node", &format!("{channel} (`CHANNEL_PORT`)")]);
    let throughput = PROBE.split("THROUGHPUT_PORT: u16 = ").nth(1).unwrap().split(';').next().unwrap();
    row(["a node that a NetworkTest names as a source", "its targets", &format!("{throughput}, or the probe's port")]);
    assert_eq!(table.lines().skip(2).count(), 8, "no other row");
}

#[test]
fn ports_in_manifests_match_the_kubelet_row() {
    let row = PAGE.lines().find(|line| line.starts_with("| kubelet |")).unwrap();
    for (program, manifest) in MANIFESTS {
        let lines = manifest.lines().map(|line| line.split('#').next().unwrap());
        // Also `containerPort:`, `hostPort:`, `port:` of a Service, and ports that are settings.
        let ports = lines.filter(|line| line.to_lowercase().contains("port:") || line.contains("LISTEN"));
        let ports: Vec<&str> = ports.collect();
        assert_eq!(ports.is_empty(), program.is_empty(), "{ports:?}");
        for line in ports {
            let (host, port) = (line.split("host: ").nth(1).unwrap(), line.split("port: ").nth(1).unwrap());
            let [host, port] = [host, port].map(|text| text.split(',').next().unwrap());
            assert!(row.contains(&format!("| {host} |")) && row.contains(&format!("{port} ({program})")), "{line}");
        }
    }
}

#[test]
fn the_policies_allow_what_the_calls_need_and_no_more() {
    for (compartment, name) in [("instance", "NODES"), ("network", "NETWORK")] {
        let rows = rows().into_iter().filter(|row| row[3] == compartment);
        let needed: Words<'_> = rows.flat_map(|row| permissions(row[2])).collect();
        // Statements that list permissions; those of optional calls name a resource type.
        let statements = PAGE.lines().filter(|line| {
            line.contains(" to {") && line.contains(&format!("in compartment {name}")) && !line.contains(RESTART)
        });
        let allowed: Vec<Words<'_>> =
            statements.map(|line| permissions(line.split('{').nth(1).unwrap().split('}').next().unwrap())).collect();
        assert_eq!(allowed, [needed.clone(), needed], "workload identity and instance principal, {compartment}");
    }
}

#[test]
fn restarting_an_instance_has_statements_of_its_own() {
    let rows: Vec<_> = rows().into_iter().filter(|row| row[3] == "instance, for reboots").collect();
    assert_eq!(rows.iter().map(|row| row[2]).collect::<Vec<_>>(), [RESTART]);
    let statements: Vec<&str> =
        PAGE.lines().filter(|line| line.starts_with("Allow ") && line.contains(RESTART)).collect();
    assert_eq!(statements.len(), 2, "workload identity and instance principal");
    for statement in statements {
        assert!(statement.contains(" to {INSTANCE_POWER_ACTIONS} in compartment NODES"), "{statement}");
    }
}
