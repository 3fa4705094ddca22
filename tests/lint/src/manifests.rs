//! Manifests: every package inherits the workspace's lints and takes its dependencies from the workspace, so that there
//! is one place for versions and one for rules. Reads Cargo.toml by lines: cargo metadata does not tell what is inherited.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Every package that does not inherit its lints, and every dependency with a version or path of its own.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let manifests = workspace.packages.iter().map(|package| workspace.folder(package).join("Cargo.toml"));
    manifests.flat_map(|manifest| check_manifest(&manifest, tree.text(&manifest).unwrap_or_default())).collect()
}

fn check_manifest(manifest: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut lints_inherited, mut section) = (false, "");
    for (number, line) in text.lines().enumerate() {
        let squeezed: String = line.split(" #").next().unwrap_or_default().split_whitespace().collect();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        lints_inherited |= section == "lints" && squeezed == "workspace=true";
        // The rest of an array stands on lines of its own, without a key.
        let is_key = squeezed.starts_with(|first: char| first.is_ascii_alphanumeric()) && squeezed.contains('=');
        if section.contains("dependencies") && is_key && !squeezed.contains("workspace=true") {
            let place = format!("{}:{}", manifest.display(), number + 1);
            let message = "write `NAME.workspace = true`: versions stand in the root manifest";
            findings.push(Finding::new("manifests", place, message));
        }
    }
    if !lints_inherited {
        let message = "does not inherit the lints: add `[lints]` with `workspace = true`";
        findings.push(Finding::new("manifests", manifest.display().to_string(), message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_and_dependencies_come_from_the_workspace() {
        for (text, count) in [
            ("[lints]\nworkspace = true\n[dependencies]\na.workspace = true\n# none\n", 0),
            ("[lints]\nworkspace = true\n[dependencies]\na = { workspace = true, features = [\n  \"rt\",\n] }\n", 0),
            ("[lints.rust]\nunsafe_code = \"allow\"\n[package]\nworkspace = true\n", 1),
            ("[lints]\nworkspace = true\n[dev-dependencies]\nserde = \"1\" # why not\n", 1),
            ("[lints]\nworkspace = true\n[dependencies.serde]\nversion = \"1\"\n", 1),
            ("[lints]\nworkspace = true\n[target.'cfg(unix)'.dependencies]\nnix = { path = \"../nix\" }\n", 1),
        ] {
            assert_eq!(check_manifest(Path::new("a/Cargo.toml"), text).len(), count, "{text}");
        }
    }
}
