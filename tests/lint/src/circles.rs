//! Circles: two modules of a program that import each other cannot be understood, tested or moved one by one. What both need
//! belongs to a module below both. Tests may import anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::finding::Finding;
use crate::functions::imports;
use crate::source::{blank, line_of};
use crate::tree::Tree;

/// The programs that are checked, and crates that are as large.
const PROGRAMS: &[&str] =
    &["controller", "crates/health", "daemon", "installer", "kubectl", "plugins/vcn-native", "plugins/vnic-attach"];

/// Circles of today, as program and two modules. The list only shrinks: an entry without a circle is a finding.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// A module and one that it imports.
type Import = (String, String);

/// Every two modules of one folder of a program that import each other, with a place of either import.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    PROGRAMS.iter().flat_map(|program| check_program(tree, program, EXCEPTIONS)).collect()
}

fn check_program(tree: &Tree, program: &str, exceptions: &[(&str, &str, &str)]) -> Vec<Finding> {
    let imports = all_imports(tree, &Path::new(program).join("src"));
    let circles = imports.iter().filter_map(|((from, to), place)| {
        let back = imports.get(&(to.clone(), from.clone()))?;
        (from < to).then_some((from, to, place, back))
    });
    let circles: Vec<_> = circles.collect();
    let mut allowed: BTreeSet<(&str, &str)> = exceptions
        .iter()
        .filter(|(known, ..)| *known == program)
        .map(|(_, one, other)| if one < other { (*one, *other) } else { (*other, *one) })
        .collect();
    let mut found = Vec::new();
    for (from, to, place, back) in circles {
        if !allowed.remove(&(from.as_str(), to.as_str())) {
            let message = format!(
                "{from} imports {to}, which imports {from} ({back}): move what both need to a module that imports neither"
            );
            found.push(Finding::new("circles", place.clone(), message));
        }
    }
    for (one, other) in allowed {
        let message = format!("{one} and {other} of {program} are no circle: remove their exception");
        found.push(Finding::new("circles", "tests/lint/src/circles.rs", message));
    }
    found
}

/// What modules of one folder import of each other, with the first place of each import.
fn all_imports(tree: &Tree, src: &Path) -> BTreeMap<Import, String> {
    let files: Vec<(Vec<String>, &Path, String)> = tree
        .with_extension("rs")
        .filter_map(|(file, text)| Some((module_of(file.strip_prefix(src).ok()?), file, product_code(text))))
        .collect();
    let tests: BTreeSet<Vec<String>> = files
        .iter()
        .flat_map(|(module, file, _)| {
            let names = test_modules(tree.text(file).unwrap_or_default());
            names.into_iter().map(|name| joined(module, &name))
        })
        .collect();
    let is_test = |module: &[String]| (1..=module.len()).any(|n| module.get(..n).is_some_and(|it| tests.contains(it)));
    let modules: BTreeSet<&[String]> = files.iter().map(|(module, ..)| module.as_slice()).collect();
    let mut found = BTreeMap::new();
    for (module, file, code) in files.iter().filter(|(module, ..)| !is_test(module)) {
        for (at, path) in paths(code) {
            let Some(target) = resolve(module, &path) else { continue };
            let Some(import) = between(module, &target, &modules) else { continue };
            found.entry(import).or_insert_with(|| format!("{}:{}", file.display(), line_of(code, at)));
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

/// `a/b.rs` is the module `a::b`; the roots of the program are no module.
fn module_of(file: &Path) -> Vec<String> {
    let module = file.with_extension("");
    let parts = module.iter().map(|part| part.to_string_lossy().into_owned());
    parts.filter(|part| !["lib", "main"].contains(&part.as_str())).collect()
}

fn joined(module: &[String], name: &str) -> Vec<String> {
    module.iter().cloned().chain([name.to_owned()]).collect()
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

const TEST_ONLY: &str = "#[cfg(test)]";

/// The code without comments, literals and what is compiled for tests only.
fn product_code(text: &str) -> String {
    let mut code = blank(text);
    while let Some(start) = code.find(TEST_ONLY) {
        let rest = code.get(start..).unwrap_or_default();
        let end = item_end(rest);
        let blanked: String = rest.chars().take(end).map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.replace_range(start..start + end, &blanked);
    }
    code
}

/// Where the item ends that an attribute begins: at its semicolon, or behind its block.
fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && byte == b'}' {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The modules in other files that are compiled for tests only.
fn test_modules(text: &str) -> Vec<String> {
    let code = blank(text);
    let name = |(at, _): (usize, &str)| {
        let rest = code.get(at + TEST_ONLY.len()..)?;
        let item = rest.get(..item_end(rest))?.trim().strip_suffix(';')?;
        let (before, name) = item.trim().rsplit_once(' ')?;
        before.ends_with("mod").then(|| name.to_owned())
    };
    code.match_indices(TEST_ONLY).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], exceptions: &[(&str, &str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> = files.iter().map(|(file, text)| (format!("p/src/{file}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        let found = check_program(&Tree::of(&files), "p", exceptions);
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
    fn exception_permits_a_circle_and_is_refused_without_one() {
        let exceptions = [("p", "b", "a"), ("q", "x", "y")];
        let files = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")];
        assert_eq!(found(&files, &exceptions), [""; 0]);
        let stale = "tests/lint/src/circles.rs: a and b of p are no circle: remove their exception";
        assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", "")], &exceptions), [stale]);
    }
}
