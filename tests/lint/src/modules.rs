//! Orphans: a Rust file that no `mod` declares is never compiled, tested or linted.

use std::collections::BTreeSet;
use std::path::Path;

use crate::finding::Finding;
use crate::source::blank;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Every Rust file that is not a target's root, and that no file next to it or above it declares.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let targets = workspace.packages.iter().flat_map(|package| &package.targets);
    let roots = targets.map(|target| target.src_path.strip_prefix(&workspace.root).unwrap_or(&target.src_path));
    let message = "no file declares this one, so it is never compiled: declare it with `mod`, or remove it";
    let orphans = orphans(tree, &roots.collect());
    orphans.into_iter().map(|file| Finding::new("modules", file.display().to_string(), message)).collect()
}

fn orphans<'a>(tree: &'a Tree, roots: &BTreeSet<&Path>) -> Vec<&'a Path> {
    let files = tree.with_extension("rs").map(|(file, _)| file);
    files.filter(|file| !roots.contains(file) && !is_declared(tree, roots, file)).collect()
}

/// Whether a root of the file's folder, the folder's own file (`a.rs` of `a/`, or `a/mod.rs`) or a `#[path]` names it.
fn is_declared(tree: &Tree, roots: &BTreeSet<&Path>, file: &Path) -> bool {
    let is_mod = file.file_stem().is_some_and(|stem| stem == "mod");
    let module = if is_mod { file.parent().unwrap_or(file) } else { file };
    let (Some(name), Some(folder)) = (module.file_stem().and_then(|stem| stem.to_str()), module.parent()) else {
        return false;
    };
    let by_path = format!("{name}.rs\"");
    tree.with_extension("rs").any(|(other, text)| {
        let above = other == folder.with_extension("rs") || other == folder.join("mod.rs");
        let next_to = roots.contains(other) && other.parent() == Some(folder);
        (above || next_to) && declares(text, name) || text.contains("path = \"") && text.contains(&by_path)
    })
}

fn declares(text: &str, name: &str) -> bool {
    let code = blank(text);
    let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|it| !it.is_empty()).collect();
    words.windows(2).any(|pair| pair == ["mod", name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nothing_declares_is_found() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "pub mod b; // mod c;\nconst C: &str = \"mod c;\"; mod e;"),
            ("a/src/b.rs", "#[cfg(test)]\nmod tests;"),
            ("a/src/b/tests.rs", ""),
            ("a/src/c.rs", ""),
            ("a/src/d.rs", "mod c;"),
            ("a/src/e/mod.rs", "mod f;"),
            ("a/src/e/f.rs", ""),
            ("a/tests/one.rs", "#[path = \"../shared/net.rs\"]\nmod net;"),
            ("a/shared/net.rs", ""),
        ]);
        let roots = ["a/src/lib.rs", "a/tests/one.rs"].map(Path::new).into();
        assert_eq!(orphans(&tree, &roots), ["a/src/c.rs", "a/src/d.rs"].map(Path::new));
    }
}
