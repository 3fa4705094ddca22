//! Manifests: every package inherits the workspace's lints and takes its dependencies from the workspace, so that there
//! is one place for versions and one for rules. Reads Cargo.toml by lines: cargo metadata does not tell what is inherited.

use std::path::Path;

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Every package that does not inherit its lints, and every dependency with a version or path of its own.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let manifest = workspace.folder(package).join("Cargo.toml");
        let text = tree.text(&manifest).unwrap_or_default();
        findings.extend(check_manifest(&manifest, text));
    }
    findings
}

fn check_manifest(manifest: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lints_inherited = false;
    let mut section = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            continue;
        }
        lints_inherited |= section == "lints" && squeezed(line) == "workspace=true";
        if let Some(dependency) = own_dependency(&section, line) {
            let message = format!("{dependency} is not from the workspace: write `{dependency}.workspace = true`");
            findings.push(Finding::new("manifests", format!("{}:{}", manifest.display(), number + 1), message));
        }
    }
    if !lints_inherited {
        let message = "does not inherit the lints: add `[lints]` with `workspace = true`";
        findings.push(Finding::new("manifests", manifest.display().to_string(), message));
    }
    findings
}

/// The dependency that this line of `section` gives a version or path of its own.
fn own_dependency<'a>(section: &'a str, line: &'a str) -> Option<&'a str> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let section = section.rsplit_once("'.").map_or(section, |(_, kind)| kind); // [target.'cfg(…)'.dependencies]
    if KINDS.contains(&section) {
        let (name, value) = line.split_once('=')?;
        let name = name.trim();
        let inherited = name.ends_with(".workspace") || squeezed(value).contains("workspace=true");
        let multi_line_rest = name.contains(['"', '{', '[']) || name.is_empty();
        return (!inherited && !multi_line_rest).then(|| name.split('.').next().unwrap_or(name));
    }
    // [dependencies.NAME]: one key a line.
    let (_, name) = KINDS.iter().find_map(|kind| section.strip_prefix(kind)?.split_once('.'))?;
    let key = line.split('=').next().unwrap_or_default().trim();
    ["version", "path", "git"].contains(&key).then_some(name)
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn messages(text: &str) -> Vec<String> {
        check_manifest(Path::new("a/Cargo.toml"), text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_inheriting_manifest_passes() {
        let text = "[dependencies]\nserde.workspace = true\ntokio = { workspace = true, features = [\"rt\"] }\n\
                    [dev-dependencies]\n# none yet\n";
        assert_eq!(messages(&format!("{LINTS}{text}")), [""; 0]);
    }

    #[test]
    fn a_manifest_without_inherited_lints_is_found() {
        assert_eq!(
            messages("[lints.rust]\nunsafe_code = \"allow\"\n"),
            ["a/Cargo.toml: does not inherit the lints: add `[lints]` with `workspace = true` [manifests]"]
        );
        assert_eq!(messages("[package]\nworkspace = true\n").len(), 1, "only in the section lints");
    }

    #[test]
    fn a_dependency_of_its_own_is_found() {
        assert_eq!(
            messages(&format!("{LINTS}[dev-dependencies]\nserde = \"1\" # why not\n")),
            ["a/Cargo.toml:4: serde is not from the workspace: write `serde.workspace = true` [manifests]"]
        );
        assert_eq!(messages(&format!("{LINTS}[dependencies]\nvcn = {{ path = \"../vcn\" }}\n")).len(), 1);
        assert_eq!(messages(&format!("{LINTS}[dependencies.serde]\nversion = \"1\"\n")).len(), 1);
        assert_eq!(messages(&format!("{LINTS}[target.'cfg(unix)'.dependencies]\nnix = \"1\"\n")).len(), 1);
    }
}
