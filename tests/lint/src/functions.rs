//! Functions of Rust source, as text: where each one is, its attributes, its body, and which other functions it calls by name.

use std::ops::Range;
use std::path::Path;

use crate::source::{blank, line_of};
use crate::tree::Tree;
use crate::workspace::Workspace;

/// One function with a body.
#[derive(Debug)]
pub struct Function {
    /// The name of its crate, as paths write it.
    pub package: String,
    /// The file that has it.
    pub file: String,
    /// The line of its name.
    pub line: usize,
    /// The name of the function.
    pub name: String,
    /// The type of the `impl` block around it; empty for a free function.
    pub owner: String,
    /// The text before it: attributes and visibility.
    pub attributes: String,
    /// Its body, without comments and literals.
    pub body: String,
}

/// Every function of the workspace, in the order of files and lines.
#[must_use]
pub fn all(workspace: &Workspace, tree: &Tree) -> Vec<Function> {
    let files = tree.with_extension("rs");
    files.flat_map(|(file, text)| of_file(&package_of(workspace, file), file, text)).collect()
}

/// The calls in a body: the path before the name, without generic arguments, and the name. A method's path is `.`.
pub fn calls(body: &str) -> impl Iterator<Item = (String, &str)> {
    body.match_indices('(').filter_map(|(at, _)| {
        let path = path_before(body.get(..at)?);
        let name = path.rsplit(|c: char| !is_word(c)).next().filter(|name| !name.is_empty() && !path.ends_with('>'));
        let (before, name) = match name {
            Some(name) => (path.strip_suffix(name)?, name),
            // Generic arguments between the name and the parenthesis.
            None => {
                let before = path.get(..path.rfind("::<")?)?;
                let name = before.rsplit(|c: char| !is_word(c)).next().filter(|name| !name.is_empty())?;
                (before.strip_suffix(name)?, name)
            }
        };
        let is_method = body.get(..at)?.strip_suffix(path)?.ends_with('.') && before.is_empty();
        let types = before
            .split("::")
            .filter(|part| part.starts_with(is_word))
            .map(|part| part.split('<').next().unwrap_or(part));
        let path = types.collect::<Vec<_>>().join("::");
        Some((if is_method { ".".to_owned() } else { path }, name))
    })
}

/// The path that a text ends with: words, `::`, and generic arguments after `::`.
fn path_before(text: &str) -> &str {
    let mut depth = 0_usize;
    let start = text.char_indices().rev().find(|(_, c)| match c {
        '>' => {
            depth += 1;
            false
        }
        '<' if depth > 0 => {
            depth -= 1;
            false
        }
        _ => depth == 0 && !is_word(*c) && *c != ':',
    });
    text.get(start.map_or(0, |(at, c)| at + c.len_utf8())..).unwrap_or_default()
}

/// What a file imports: the path before each name, and the name, which is `*` for all.
#[must_use]
pub fn imports(text: &str) -> Vec<(String, String)> {
    let code = blank(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let (before, rest) = code.split_at(at);
        if !before.ends_with(is_word) {
            expand("", rest.get(4..).and_then(|rest| rest.split(';').next()).unwrap_or_default(), &mut found);
        }
    }
    found
}

/// Adds the names of one tree of imports below a path.
fn expand(path: &str, tree: &str, found: &mut Vec<(String, String)>) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let (before, name) = tree.rsplit_once("::").unwrap_or(("", tree));
        let name = name.split(" as ").next().unwrap_or(name).trim();
        return found.push((format!("{path}{before}"), name.to_owned()));
    };
    let (mut depth, mut from) = (0_usize, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b',' | b'}' if depth == 0 => {
                let part = list.get(from..at).unwrap_or_default();
                if !part.trim().is_empty() {
                    expand(&format!("{path}{head}"), part, found);
                }
                from = at + 1;
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The package with the longest folder that contains the file.
fn package_of(workspace: &Workspace, file: &Path) -> String {
    let around = workspace.packages.iter().filter(|package| file.starts_with(workspace.folder(package)));
    let nearest = around.max_by_key(|package| workspace.folder(package).as_os_str().len());
    nearest.map(|package| package.name.replace('-', "_")).unwrap_or_default()
}

fn of_file(package: &str, file: &Path, text: &str) -> Vec<Function> {
    let code = blank(text);
    let blocks: Vec<(&str, Range<usize>)> = impl_blocks(&code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let (before, rest) = code.split_at(at);
        if before.ends_with(is_word) {
            continue;
        }
        let name: String = rest.chars().skip(3).take_while(|c| is_word(*c)).collect();
        let Some(body) = block(&code, at).filter(|_| !name.is_empty()) else { continue };
        let owner = blocks.iter().rev().find(|(_, range)| range.contains(&at)).map_or("", |(owner, _)| owner);
        found.push(Function {
            package: package.to_owned(),
            file: file.display().to_string(),
            line: line_of(text, at),
            name,
            owner: owner.to_owned(),
            attributes: before.rsplit(['{', '}', ';']).next().unwrap_or_default().to_owned(),
            body: code.get(body).unwrap_or_default().to_owned(),
        });
    }
    found
}

/// The type and the place of each `impl` block.
fn impl_blocks(code: &str) -> Vec<(&str, Range<usize>)> {
    let starts = code.match_indices("impl").filter(|(at, _)| {
        code.get(..*at)
            .is_none_or(|it| it.trim_end_matches(' ').is_empty() || it.ends_with('\n') || it.ends_with("    "))
    });
    let blocks = starts.filter_map(|(at, _)| {
        let range = block(code, at)?;
        let head = code.get(at..range.start)?;
        let head = head.split(" where").next().unwrap_or(head);
        let kind = head.rsplit_once(" for ").map_or_else(|| head.trim_start_matches("impl"), |(_, kind)| kind);
        let kind = if kind.starts_with('<') { kind.split_once("> ").map_or(kind, |(_, kind)| kind) } else { kind };
        let name = kind.trim().split('<').next().unwrap_or_default().rsplit("::").next().unwrap_or_default();
        Some((name.trim(), range))
    });
    blocks.collect()
}

/// The block that follows, with its braces; `None` if a semicolon ends the item before it.
pub(crate) fn block(code: &str, from: usize) -> Option<Range<usize>> {
    let (mut depth, mut start) = (0_usize, None);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' | b'{' => {
                if depth == 0 && byte == b'{' {
                    start = Some(at);
                }
                depth += 1;
            }
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if let (0, Some(start)) = (depth, start) {
                    return Some(start..at + 1);
                }
            }
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_their_type_and_body() {
        let text = "/// fn no\nimpl<T: A> From<B> for c::Held<T> where T: D {\n    #[x]\n    fn one(&self) -> [u8; 2] { two() }\n}\n\
                    trait E { fn three(); }\n#[tokio::test(start_paused = true)]\nasync fn four() { if a { b() } }";
        let found = of_file("p", Path::new("a.rs"), text);
        let found: Vec<_> = found.iter().map(|it| (it.line, &*it.owner, &*it.name, &*it.body)).collect();
        assert_eq!(found, [(4, "Held", "one", "{ two() }"), (8, "", "four", "{ if a { b() } }")]);
    }

    #[test]
    fn calls_are_found_with_their_path() {
        let found: Vec<_> = calls("{ a(b::c(1)).d(); E::<F>::g(); h::<I>(); j!(k); if (l) {} }").collect();
        let found: Vec<_> = found.iter().map(|(path, name)| (&**path, *name)).collect();
        assert_eq!(found, [("", "a"), ("b", "c"), (".", "d"), ("E", "g"), ("", "h")]);
    }

    #[test]
    fn imports_are_found_with_their_path() {
        let found = imports("use a::{b, c::{d as e, *}}; pub(crate) use super::*;\n// because f;\nuse g;");
        let found: Vec<_> = found.iter().map(|(path, name)| (&**path, &**name)).collect();
        assert_eq!(found, [("a::", "b"), ("a::c::", "d"), ("a::c::", "*"), ("super", "*"), ("", "g")]);
    }
}
