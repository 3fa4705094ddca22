//! Orphans: a Rust file that no target reaches through its `mod` declarations is never compiled, tested or linted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::source::{blank, bracketed, words};
use crate::tree::Tree;
use crate::workspace::Workspace;

/// A file of a target's module tree.
struct Module {
    file: PathBuf,
    /// The folder its child modules are looked for in: beside a root or a `mod.rs`, below others.
    children: PathBuf,
}

/// One `mod name;`, with the inline modules it stands in.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    inside: PathBuf,
    name: String,
    /// The value of its `#[path = "…"]`.
    path: Option<String>,
}

/// Every Rust file that no target of the workspace reaches.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let targets = workspace.packages.iter().flat_map(|package| &package.targets);
    let roots = targets.map(|target| target.src_path.strip_prefix(&workspace.root).unwrap_or(&target.src_path));
    let reached = reach(roots, tree);
    tree.with_extension("rs")
        .filter(|(file, _)| !reached.contains(*file))
        .map(|(file, _)| {
            let message = "no target reaches this file, so it is never compiled: declare it with `mod`, or remove it";
            Finding::new("modules", file.display().to_string(), message)
        })
        .collect()
}

fn reach<'a>(roots: impl Iterator<Item = &'a Path>, tree: &Tree) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut queue: Vec<Module> = roots.map(|root| root_module(root.to_owned())).collect();
    while let Some(module) = queue.pop() {
        let Some(text) = tree.text(&module.file) else { continue };
        if !reached.insert(module.file.clone()) {
            continue;
        }
        for declaration in declarations(text) {
            queue.extend(candidates(&module, &declaration).into_iter().filter(|found| tree.has(&found.file)));
        }
        let folder = folder_of(&module.file);
        queue.extend(included(text).into_iter().map(|file| root_module(normal(&folder.join(file)))));
    }
    reached
}

/// The files a declaration may mean.
fn candidates(module: &Module, declaration: &Declaration) -> Vec<Module> {
    let folder = module.children.join(&declaration.inside);
    if let Some(path) = &declaration.path {
        let top = declaration.inside.as_os_str().is_empty();
        let base = if top { folder_of(&module.file).to_owned() } else { folder };
        return vec![root_module(normal(&base.join(path)))];
    }
    let below = folder.join(&declaration.name);
    vec![
        Module { file: below.with_extension("rs"), children: below.clone() },
        Module { file: below.join("mod.rs"), children: below },
    ]
}

fn root_module(file: PathBuf) -> Module {
    Module { children: folder_of(&file).to_owned(), file }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

fn declarations(text: &str) -> Vec<Declaration> {
    let code = blank(text);
    let mut found = Vec::new();
    let mut inline: Vec<(usize, &str)> = Vec::new(); // (where it ends, name)
    let mut words = words(&code);
    while let Some((at, word)) = words.next() {
        inline.retain(|(end, _)| at < *end);
        if word != "mod" {
            continue;
        }
        let Some((start, name)) = words.next() else { break };
        let after = start + name.len();
        let tail = code.get(after..).unwrap_or_default();
        match tail.trim_start().chars().next() {
            Some(';') => found.push(Declaration {
                inside: inline.iter().map(|(_, name)| name).collect(),
                name: name.to_owned(),
                path: path_attribute(text, &code, at),
            }),
            Some('{') => {
                let open = after + tail.len() - tail.trim_start().len();
                inline.push((bracketed(&code, open).end, name));
            }
            _ => {}
        }
    }
    found
}

/// The value of `#[path = "…"]` among the attributes of the item whose keyword is at `item`.
fn path_attribute(text: &str, code: &str, item: usize) -> Option<String> {
    let before = code.get(..item)?;
    let start = before.rfind([';', '}', '{']).map_or(0, |at| at + 1);
    let attributes = code.get(start..item)?;
    let path = start + attributes.find("path")?;
    quoted(text.get(path..item)?)
}

/// Files named by `include!("…")`.
fn included(text: &str) -> Vec<String> {
    let code = blank(text);
    let includes = code.match_indices("include!(");
    includes.filter_map(|(at, call)| quoted(text.get(at + call.len()..)?.trim_start())).collect()
}

/// The first string of `text`, if nothing but blanks and `=` comes before it but a word.
fn quoted(text: &str) -> Option<String> {
    let text = text.trim_start_matches("path").trim_start_matches([' ', '=']);
    Some(text.strip_prefix('"')?.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn orphans(files: &[(&str, &str)], roots: &[&str]) -> Vec<String> {
        let tree = Tree::of(files);
        let reached = reach(roots.iter().map(Path::new), &tree);
        let all = tree.with_extension("rs").map(|(file, _)| file.to_owned());
        all.filter(|file| !reached.contains(file)).map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn a_file_nobody_declares_is_an_orphan() {
        let files = [("a/src/lib.rs", "mod b;"), ("a/src/b.rs", ""), ("a/src/c.rs", "")];
        assert_eq!(orphans(&files, &["a/src/lib.rs"]), ["a/src/c.rs"]);
    }

    #[test]
    fn a_declaration_in_a_comment_or_string_reaches_nothing() {
        let files = [("lib.rs", "// mod b;\nconst C: &str = \"mod c;\";"), ("b.rs", ""), ("c.rs", "")];
        assert_eq!(orphans(&files, &["lib.rs"]), ["b.rs", "c.rs"]);
    }

    #[test]
    fn nested_modules_are_found_below_their_parent() {
        let files = [
            ("lib.rs", "pub mod a;"),
            ("a.rs", "pub(crate) mod b; #[cfg(test)]\nmod tests;"),
            ("a/b.rs", ""),
            ("a/tests.rs", ""),
            ("b.rs", ""),
        ];
        assert_eq!(orphans(&files, &["lib.rs"]), ["b.rs"]);
    }

    #[test]
    fn a_mod_rs_looks_beside_itself() {
        let files = [("lib.rs", "mod a;"), ("a/mod.rs", "mod b;"), ("a/b.rs", "")];
        assert_eq!(orphans(&files, &["lib.rs"]), [""; 0]);
    }

    #[test]
    fn an_inline_module_adds_a_folder_until_it_ends() {
        let files = [("lib.rs", "mod a { fn f() {} mod b; } mod c;"), ("a/b.rs", ""), ("c.rs", ""), ("a/c.rs", "")];
        assert_eq!(orphans(&files, &["lib.rs"]), ["a/c.rs"]);
    }

    #[test]
    fn a_path_attribute_is_followed_and_its_file_looks_beside_itself() {
        let files = [
            ("t/one.rs", "#[path = \"../shared/net.rs\"]\nmod net;"),
            ("shared/net.rs", "mod ns;"),
            ("shared/ns.rs", ""),
        ];
        assert_eq!(orphans(&files, &["t/one.rs"]), [""; 0]);
    }

    #[test]
    fn an_included_file_is_reached() {
        let files = [
            ("a/lib.rs", "include!(\"list.rs\"); include!(concat!(env!(\"OUT_DIR\"), \"/x.rs\"));"),
            ("a/list.rs", ""),
        ];
        assert_eq!(orphans(&files, &["a/lib.rs"]), [""; 0]);
    }
}
