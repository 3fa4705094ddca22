//! `kubectl oke-node` runs on an operator's machine, which may have another system than a node. So it links nothing for Linux
//! only, and the crates that it shares with agent and controller have such code behind `cfg`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use crate::finding::Finding;
use crate::functions::block;
use crate::linkage::linked_crates;
use crate::source::{blank, line_of};
use crate::tree::Tree;
use crate::workspace::Workspace;

const PACKAGE: &str = "kubectl-oke-node";

/// Systems that stand for all others.
const TARGETS: &[&str] = &["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// Our crates that it may link. Their code is searched for what exists on Linux only.
const PORTABLE: &[&str] =
    &["api", "backoff", "command", "health", "kubectl-oke-node", "nettest", "stream", "tunables", "vcn"];

/// Crates of others that only exist on Linux, by the beginning of their names.
const FORBIDDEN: &[&str] = &["inotify", "linux-raw-sys", "netlink", "nix", "procfs"];

/// Paths and words of code that other systems do not have.
const LINUX_ONLY: &[&str] =
    &["netlink::", "nix::", "os::fd", "os::linux", "os::unix", "signal::unix", "unsafe ", "libc::O_"];

/// Attributes that keep an item from other systems, or from all programs; blanked, as [`blank`] leaves them.
const GATES: &[&str] = &["#[cfg(target_os =", "#[cfg(unix)]", "#[cfg(test)]"];

/// Every dependency and every line that ties the program to Linux.
///
/// # Errors
/// When cargo fails.
pub fn check(root: &Path, workspace: &Workspace, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let ours: BTreeSet<&str> = workspace.packages.iter().map(|package| &*package.name).collect();
    let mut found = Vec::new();
    for target in TARGETS {
        found.extend(check_linked(target, &linked_crates(root, PACKAGE, Some(target))?, &ours));
    }
    let portable = workspace.packages.iter().filter(|package| PORTABLE.contains(&&*package.name));
    let folders: Vec<_> = portable.map(|package| workspace.folder(package).join("src")).collect();
    for (file, text) in tree.with_extension("rs").filter(|(file, _)| folders.iter().any(|it| file.starts_with(it))) {
        if !is_gated_file(tree, file) {
            found.extend(check_source(&file.display().to_string(), text));
        }
    }
    Ok(found)
}

fn check_linked(target: &str, linked: &BTreeSet<String>, ours: &BTreeSet<&str>) -> Vec<Finding> {
    let is_wrong = |name: &&String| {
        let of_linux = FORBIDDEN
            .iter()
            .any(|start| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')));
        of_linux || ours.contains(&***name) && !PORTABLE.contains(&&***name)
    };
    let finding = |name: &String| {
        let how =
            format!("links {name}, which is for Linux only; see: cargo tree -p {PACKAGE} --target {target} -i {name}");
        Finding::new("portable", PACKAGE, how)
    };
    linked.iter().filter(is_wrong).map(finding).collect()
}

fn check_source(file: &str, text: &str) -> Vec<Finding> {
    let code = blank(text);
    let gated = gated_items(&code);
    let hits = LINUX_ONLY.iter().flat_map(|what| code.match_indices(what));
    let open = hits.filter(|(at, what)| {
        let before = code.get(..*at).unwrap_or_default();
        let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        (is_whole || what.starts_with(':')) && !gated.iter().any(|item| item.contains(at))
    });
    open.map(|(at, what)| {
        let message = format!("`{}` is for Linux only: put it behind `#[cfg(target_os = \"linux\")]`", what.trim());
        Finding::new("portable", format!("{file}:{}", line_of(text, at)), message)
    })
    .collect()
}

/// The items behind one of the gates, with their attribute.
fn gated_items(code: &str) -> Vec<Range<usize>> {
    let starts = GATES.iter().flat_map(|gate| code.match_indices(gate)).map(|(at, _)| at);
    let end = |at: usize| {
        let semicolon = || code.get(at..).and_then(|rest| rest.find(';')).map(|length| at + length);
        block(code, at).map(|block| block.end).or_else(semicolon).unwrap_or(code.len())
    };
    starts.map(|at| at..end(at)).collect()
}

/// Whether the module of a file, or one around it, is declared behind a gate.
fn is_gated_file(tree: &Tree, file: &Path) -> bool {
    let (Some(name), Some(folder)) = (file.file_stem().and_then(|name| name.to_str()), file.parent()) else {
        return false;
    };
    let parents = [folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs")];
    let declaration = format!("mod {name};");
    parents.iter().filter(|parent| parent.as_path() != file).any(|parent| {
        let Some(text) = tree.text(parent) else { return false };
        let code = blank(text);
        let Some(at) = code.find(&declaration) else { return false };
        gated_items(&code).iter().any(|item| item.contains(&at)) || is_gated_file(tree, parent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_linux_and_our_own_unlisted_ones_are_found() {
        let ours = ["resident", "vcn", "netlink"].into();
        let linked = ["vcn", "serde", "nixos", "resident", "nix", "netlink-sys"].map(str::to_owned).into();
        let found = check_linked("t", &linked, &ours);
        let names: Vec<_> = found.iter().filter_map(|it| it.message.split([' ', ',']).nth(1)).collect();
        assert_eq!(names, ["netlink-sys", "nix", "resident"]);
    }

    #[test]
    fn linux_only_code_is_found_outside_of_gates() {
        let text = "use std::os::unix::fs::symlink;\n// nix::\n#[cfg(target_os = \"linux\")]\nuse nix::errno::Errno;\n\
                    #[cfg(target_os = \"linux\")]\nfn a() { unsafe { b() } }\n#[cfg(not(target_os = \"linux\"))]\n\
                    fn a() { nix::c() }\nfn d() { mynix::e(); unsafe { f() } }\n";
        let places: Vec<_> = check_source("a.rs", text).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["a.rs:8", "a.rs:1", "a.rs:9"]);
    }

    #[test]
    fn file_of_a_gated_module_is_not_searched() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "mod open;\n#[cfg(target_os = \"linux\")]\nmod kernel;\n#[cfg(test)]\nmod tests;"),
            ("a/src/kernel.rs", "mod deep;"),
            ("a/src/kernel/deep.rs", ""),
            ("a/src/tests.rs", ""),
            ("a/src/open.rs", ""),
        ]);
        let gated = |file: &str| is_gated_file(&tree, Path::new(file));
        assert!(gated("a/src/kernel.rs") && gated("a/src/kernel/deep.rs") && gated("a/src/tests.rs"));
        assert!(!gated("a/src/open.rs") && !gated("a/src/lib.rs"));
    }
}
