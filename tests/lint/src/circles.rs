//! Circles: modules of a crate that import each other, two or more in a ring, cannot be understood, tested or moved one by one. What
//! they need of each other belongs to a module below them. Tests may import anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::finding::Finding;
use crate::functions::imports;
use crate::product::{ProductFile, product_files};
use crate::source::line_of;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Modules that may be in one circle.
struct Exception {
    folder: &'static str,
    modules: &'static [&'static str],
    #[expect(dead_code, reason = "for readers")]
    reason: &'static str,
}

/// Circles of today. The list only shrinks: an entry without a circle is a finding.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        folder: "daemon",
        modules: &["lifecycle", "node_policy", "reconcile", "report", "sources"],
        reason: "every task gets lifecycle::agent::Agent, whose fields are the handles of the tasks, one of them of node_policy",
    },
    Exception {
        folder: "sandbox",
        modules: &["container", "network", "node", "oci", "services"],
        reason: "a node of the emulated VCN starts its services, and they change the VCN; it is never shipped",
    },
];

/// A module and one that it imports.
type Import = (String, String);

/// Every circle of modules of one folder that import each other, with the places of the imports.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let folders = workspace.packages.iter().map(|package| workspace.folder(package));
    folders.flat_map(|folder| check_crate(tree, &folder.display().to_string(), EXCEPTIONS)).collect()
}

fn check_crate(tree: &Tree, folder: &str, exceptions: &[Exception]) -> Vec<Finding> {
    let imports = all_imports(tree, &Path::new(folder).join("src"));
    let mut unused: Vec<&Exception> = exceptions.iter().filter(|known| known.folder == folder).collect();
    let mut found = Vec::new();
    for Group { members, circle } in groups(&imports) {
        let is_known = |known: &&Exception| members.iter().all(|module| known.modules.contains(module));
        if exceptions.iter().filter(|known| known.folder == folder).any(|known| is_known(&known)) {
            unused.retain(|known| !is_known(known));
            continue;
        }
        let ring = circle.iter().zip(circle.iter().cycle().skip(1));
        let steps: Vec<(&str, &str)> = ring
            .filter_map(|(from, to)| Some((*to, imports.get(&((*from).to_owned(), (*to).to_owned()))?.as_str())))
            .collect();
        let [(second, place), rest @ ..] = &steps[..] else { continue };
        let rest: String = rest.iter().map(|(to, place)| format!(", which imports {to} ({place})")).collect();
        let first = circle.first().copied().unwrap_or_default();
        let message = format!("{first} imports {second}{rest}: move what both need to a module that imports neither");
        found.push(Finding::new("circles", *place, message));
    }
    found.extend(unused.into_iter().map(|known| {
        let message = format!("{} of {folder} do not form a circle: remove their exception", known.modules.join(", "));
        Finding::new("circles", "tests/lint/src/circles.rs", message)
    }));
    found
}

/// Modules that reach each other through imports, and a shortest circle of them.
struct Group<'a> {
    members: Vec<&'a str>,
    circle: Vec<&'a str>,
}

fn groups(imports: &BTreeMap<Import, String>) -> Vec<Group<'_>> {
    let modules: BTreeSet<&str> = imports.keys().map(|(from, _)| from.as_str()).collect();
    let ways: BTreeMap<&str, BTreeMap<&str, &str>> =
        modules.iter().map(|module| (*module, ways_from(imports, module))).collect();
    let reaches = |from: &str, to: &str| ways.get(from).is_some_and(|ways| ways.contains_key(to));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for module in &modules {
        let members: Vec<&str> =
            modules.iter().copied().filter(|other| reaches(module, other) && reaches(other, module)).collect();
        let Some(ways) = ways.get(module).filter(|_| !members.is_empty() && !seen.contains(module)) else { continue };
        seen.extend(&members);
        let before = |at: &&str| ways.get(at).copied().filter(|_| at != module);
        let mut circle: Vec<&str> = std::iter::successors(ways.get(module).copied(), before).collect();
        circle.reverse();
        found.push(Group { members, circle });
    }
    found
}

/// The modules that a module reaches, each with the one before it on a shortest way.
fn ways_from<'a>(imports: &'a BTreeMap<Import, String>, start: &'a str) -> BTreeMap<&'a str, &'a str> {
    let mut ways = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for (_, to) in imports.keys().filter(|(from, _)| from == at) {
            if !ways.contains_key(to.as_str()) {
                ways.insert(to.as_str(), at);
                queue.push_back(to);
            }
        }
    }
    ways
}

/// What modules of one folder import of each other, with the first place of each import.
fn all_imports(tree: &Tree, src: &Path) -> BTreeMap<Import, String> {
    let files = product_files(tree, src);
    let modules: BTreeSet<&[String]> = files.iter().map(|file| file.module.as_slice()).collect();
    let mut found = BTreeMap::new();
    for ProductFile { module, path, code } in &files {
        for (at, import) in paths(code) {
            let Some(target) = resolve(module, &import) else { continue };
            let Some(import) = between(module, &target, &modules) else { continue };
            found.entry(import).or_insert_with(|| format!("{}:{}", path.display(), line_of(code, at)));
        }
    }
    found
}

/// The two modules of one folder that an import connects; `None` within a module, and for a folder and what is in it.
fn between(from: &[String], to: &[String], modules: &BTreeSet<&[String]>) -> Option<Import> {
    let shared = from.iter().zip(to).take_while(|(one, other)| one == other).count();
    let (own, imported) = (from.get(..=shared)?, to.get(..=shared)?);
    modules.contains(imported).then(|| (own.join("::"), imported.join("::")))
}

/// The absolute path of what is imported; `None` outside this program.
fn resolve(module: &[String], path: &str) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut parts = path.split("::").filter(|part| !part.is_empty()).peekable();
    match parts.next()? {
        "crate" => base.clear(),
        "super" => {
            base.pop();
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        _ => return None,
    }
    base.extend(parts.map(str::to_owned));
    Some(base)
}

/// The paths from `crate` and `super` in code, with their places: those of `use`, and others.
fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let (before, rest) = code.split_at(at);
            if before.ends_with(|c: char| is_word(c) || c == ':') {
                continue;
            }
            let end = rest.find(|c: char| !is_word(c) && c != ':').unwrap_or(rest.len());
            let path = rest.get(..end).unwrap_or_default();
            match rest.get(end..).is_some_and(|rest| rest.starts_with('{')) {
                true => {
                    let list = rest.split(';').next().unwrap_or_default();
                    let all = imports(&format!("use {list};"));
                    found.extend(all.into_iter().map(|(before, name)| (at, format!("{before}::{name}"))));
                }
                false => found.push((at, path.to_owned())),
            }
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], exceptions: &[Exception]) -> Vec<String> {
        let files: Vec<(String, &str)> = files.iter().map(|(file, text)| (format!("p/src/{file}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        let found = check_crate(&Tree::of(&files), "p", exceptions);
        found.iter().map(|finding| format!("{}: {}", finding.place, finding.message)).collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_found_with_both_places() {
        let advice = "move what both need to a module that imports neither";
        for (import, line) in [
            ("use crate::b::c::D;", 1),
            ("use crate::{x, b::{self, c}};", 1),
            ("\npub(crate) use super::b;", 2),
            ("fn f() {\n crate::b::c() }", 2),
        ] {
            let files =
                [("lib.rs", "mod a; mod b; mod x;"), ("a.rs", import), ("b/c.rs", "\nuse crate::a::E;"), ("b.rs", "")];
            let expected = format!("p/src/a.rs:{line}: a imports b, which imports a (p/src/b/c.rs:2): {advice}");
            assert_eq!(found(&files, &[]), [expected], "{import}");
        }
        let files = [("a.rs", ""), ("a/x.rs", "use super::y::Y;"), ("a/y.rs", "use super::super::a::x::X;")];
        assert_eq!(
            found(&files, &[]),
            [format!("p/src/a/x.rs:1: a::x imports a::y, which imports a::x (p/src/a/y.rs:1): {advice}")]
        );
    }

    #[test]
    fn imports_one_way_of_tests_and_within_a_folder_are_no_circle() {
        let b = ("b.rs", "use crate::a::A; use super::Root; // crate::c");
        let of_test = "#[cfg(test)]\nmod tests { use crate::b::B; fn f() { } }\n#[cfg(test)] mod cases;\n#[cfg(test)]\nuse crate::b;";
        let files = [
            ("lib.rs", "use crate::a; use crate::b;"),
            ("a.rs", of_test),
            ("a/cases.rs", "use crate::b::B;"),
            ("a/x.rs", "use super::A; use crate::a; const B: &str = \"crate::b\";"),
            b,
        ];
        assert_eq!(found(&files, &[]), [""; 0]);
    }

    #[test]
    fn ring_of_three_modules_is_found_once() {
        let files = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "\nuse crate::c::C;"),
            ("c.rs", "use crate::{a, d};"),
            ("d.rs", ""),
        ];
        let advice = "move what both need to a module that imports neither";
        let ring = "a imports b, which imports c (p/src/b.rs:2), which imports a (p/src/c.rs:1)";
        assert_eq!(found(&files, &[]), [format!("p/src/a.rs:1: {ring}: {advice}")]);
    }

    #[test]
    fn exception_permits_a_circle_and_is_refused_without_one() {
        let exception = |folder, modules| Exception { folder, modules, reason: "" };
        let exceptions = [exception("p", &["b", "a"]), exception("q", &["x", "y"])];
        let files = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")];
        assert_eq!(found(&files, &exceptions), [""; 0]);
        let stale = "tests/lint/src/circles.rs: b, a of p do not form a circle: remove their exception";
        assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", "")], &exceptions), [stale]);
    }
}
