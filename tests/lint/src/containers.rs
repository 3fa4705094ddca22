//! Tests of the node agent and of the installer start these programs in the containers of the shipped manifests. Only a few
//! files name the programs, and those are reviewed with care.

use crate::finding::Finding;
use crate::source::line_of;
use crate::tree::Tree;

/// How cargo names the programs to a test.
const PROGRAMS: [&str; 2] = ["CARGO_BIN_EXE_oke-node-agent", "CARGO_BIN_EXE_oke-cni-installer"];

/// Files that may name them.
const ALLOWED: [&str; 4] = [
    "daemon/tests/agent/node.rs",
    "installer/tests/command/node.rs",
    // A user other than root calls the agent, with a copy of its program.
    "daemon/tests/agent/socket.rs",
    // The probe of a probe Pod, which is another container with no privilege at all.
    "daemon/tests/probes/pod.rs",
];

/// Tests that could start the agent or the installer outside a container.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.with_extension("rs").map(|(file, text)| (file.display().to_string(), text));
    let files = files.filter(|(name, _)| name.contains("/tests/") && !name.starts_with("tests/lint/"));
    let others = files.filter(|(name, _)| !ALLOWED.contains(&name.as_str()));
    let mut findings = Vec::new();
    for (name, text) in others {
        for program in PROGRAMS {
            findings.extend(text.match_indices(program).map(|(at, _)| {
                let message =
                    format!("{program} is started outside its container: use {} instead", ALLOWED[..2].join(" or "));
                Finding::new("containers", format!("{name}:{}", line_of(text, at)), message)
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_started_without_a_container_is_found() {
        for program in PROGRAMS {
            let text = format!("//! A.\nCommand::new(env!(\"{program}\"))");
            for (name, count) in [("daemon/tests/agent/host.rs", 1), ("installer/tests/a.rs", 1), (ALLOWED[0], 0)] {
                assert_eq!(check(&Tree::of(&[(name, &text)])).len(), count, "{name}");
            }
        }
    }
}
