//! Floors: a crate depends only on crates of lower floors, and programs never on programs. Test dependencies are free.

use std::path::Path;

use crate::finding::Finding;
use crate::workspace::{Dependency, Package, Workspace};

/// Which folder is on which floor. A folder that is not listed is a finding: decide first, then write code.
const FLOORS: &[(&str, u8)] = &[
    // Vocabulary: no input, no output.
    ("crates/vcn", 0),
    ("crates/api", 0),
    ("crates/backoff", 0),
    ("crates/stream", 0),
    // Adapters: one outside system each.
    ("crates/netlink", 1),
    ("crates/imds", 1),
    ("crates/oci", 1),
    ("crates/cni", 1),
    ("crates/telemetry", 1),
    ("crates/channel", 1),
    ("crates/command", 1),
    ("crates/resident", 1),
    ("crates/systemd", 1),
    // Decisions: pure planning, thin appliers.
    ("crates/attachment", 2),
    ("crates/datapath", 2),
    ("crates/ipam", 2),
    ("crates/health", 2),
    ("crates/nettest", 2),
    ("crates/tunables", 2),
    // Programs.
    ("plugins/vcn-native", 3),
    ("plugins/vnic-attach", 3),
    ("daemon", 3),
    ("controller", 3),
    ("installer", 3),
    ("kubectl", 3),
    // Never shipped.
    ("sandbox", 4),
];

/// Everything under this folder is on the top floor.
const TESTS: (&str, u8) = ("tests", 4);

/// Dependencies that the rule forbids and we want, each with its reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/api", "crates/vcn", "resources and annotations are written in the VCN's nouns"),
    ("crates/attachment", "crates/datapath", "it joins what is recorded and what is planned, for each plugin"),
    ("crates/attachment", "crates/ipam", "it joins what is recorded and what is planned, for each plugin"),
    ("crates/resident", "crates/command", "a log line and a command write an error alike"),
    ("daemon", "installer", "the agent runs the installer as a library: one resident container, one binary fewer"),
    ("tests", "sandbox", "the black-box tests drive the sandbox"),
    ("sandbox", "tests/kube", "the demo has a cluster; both are for tests alone"),
    ("tests", "tests/host", "the bench has the node of the plugin's tests"),
    ("tests", "tests/kube", "the bench measures the agent while it watches an API server"),
];

/// Every dependency between our packages that does not lead downwards.
#[must_use]
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    workspace.packages.iter().flat_map(|package| check_package(workspace, package)).collect()
}

fn check_package(workspace: &Workspace, package: &Package) -> Vec<Finding> {
    let from = workspace.folder(package);
    let Some(floor) = floor_of(from) else {
        let message = format!("{} has no floor: give {} one in tests/lint/src/floors.rs", package.name, from.display());
        return vec![Finding::new("floors", place(from), message)];
    };
    let ours = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
    ours.filter_map(|dependency| check_edge(workspace, from, floor, dependency)).collect()
}

fn check_edge(workspace: &Workspace, from: &Path, floor: u8, dependency: &Dependency) -> Option<Finding> {
    let path = dependency.path.as_deref()?;
    let to = path.strip_prefix(&workspace.root).unwrap_or(path);
    let excepted = EXCEPTIONS.iter().any(|(a, b, _)| from == Path::new(a) && to == Path::new(b));
    match floor_of(to) {
        Some(below) if below < floor || excepted => None,
        Some(other) => Some(Finding::new(
            "floors",
            place(from),
            format!(
                "floor {floor} depends on {} of floor {other}: dependencies lead downwards only; \
                 move what both need to a lower floor",
                to.display()
            ),
        )),
        // Its own package reports the missing floor, if it is a member; one outside the workspace never is.
        None => Some(Finding::new("floors", place(from), format!("depends on {}, which has no floor", to.display()))),
    }
}

fn floor_of(folder: &Path) -> Option<u8> {
    if folder.starts_with(TESTS.0) {
        return Some(TESTS.1);
    }
    FLOORS.iter().find(|(known, _)| folder == Path::new(known)).map(|(_, floor)| *floor)
}

fn place(folder: &Path) -> String {
    folder.join("Cargo.toml").display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(edges: &[(&str, &[(&str, &str)])]) -> Workspace {
        let packages = edges
            .iter()
            .map(|(folder, dependencies)| Package {
                description: None,
                name: folder.rsplit('/').next().unwrap().to_owned(),
                targets: Vec::new(),
                manifest_path: Path::new("/w").join(folder).join("Cargo.toml"),
                dependencies: dependencies
                    .iter()
                    .map(|(kind, to)| Dependency {
                        name: (*to).to_owned(),
                        kind: (!kind.is_empty()).then(|| (*kind).to_owned()),
                        path: Some(Path::new("/w").join(to)),
                    })
                    .collect(),
            })
            .collect();
        Workspace { packages, root: "/w".into() }
    }

    fn count(folder: &str, kind: &str, to: &str) -> usize {
        check(&workspace(&[(folder, &[(kind, to)])])).len()
    }

    #[test]
    fn dependencies_lead_downwards() {
        for (from, kind, to, found) in [
            ("crates/datapath", "", "crates/netlink", 0),
            ("crates/datapath", "build", "crates/vcn", 0),
            ("crates/netlink", "", "crates/datapath", 1),
            ("crates/cni", "", "crates/netlink", 1),
            ("plugins/vcn-native", "", "daemon", 1),
            ("crates/vcn", "build", "crates/cni", 1),
            ("crates/vcn", "dev", "crates/cni", 0),
            // An exception, in its own direction only.
            ("daemon", "", "installer", 0),
            ("installer", "", "daemon", 1),
            // Without a floor.
            ("crates/misc", "", "crates/vcn", 1),
            ("daemon", "", "crates/misc", 1),
        ] {
            assert_eq!(count(from, kind, to), found, "{from} -> {to} {kind}");
        }
    }

    #[test]
    fn crates_from_a_registry_have_no_floor() {
        let mut workspace = workspace(&[("crates/vcn", &[("", "serde")])]);
        workspace.packages[0].dependencies[0].path = None;
        assert_eq!(check(&workspace), []);
    }
}
