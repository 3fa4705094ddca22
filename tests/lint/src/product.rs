//! Product code: what is not compiled for tests only, without comments and literals.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::blank;
use crate::tree::Tree;

/// A file of a crate's `src`, if it is not compiled for tests only.
#[derive(Debug)]
pub struct ProductFile<'a> {
    /// `a/b.rs` is the module `a::b`; the roots of a crate are the empty path.
    pub module: Vec<String>,
    /// Relative to the root of the checkout.
    pub path: &'a Path,
    /// Its text of the same length, where comments, literals and parts for tests are spaces.
    pub code: String,
}

/// The product files below a folder `src`.
#[must_use]
pub fn product_files<'a>(tree: &'a Tree, src: &Path) -> Vec<ProductFile<'a>> {
    let mut files: Vec<ProductFile<'_>> = tree
        .with_extension("rs")
        .filter_map(|(path, text)| {
            let module = module_of(path.strip_prefix(src).ok()?);
            Some(ProductFile { module, path, code: product_code(text) })
        })
        .collect();
    let tests: BTreeSet<Vec<String>> = files
        .iter()
        .flat_map(|file| {
            let names = test_modules(tree.text(file.path).unwrap_or_default());
            names.into_iter().map(|name| file.module.iter().cloned().chain([name]).collect())
        })
        .collect();
    files.retain(|ProductFile { module, .. }| {
        !(1..=module.len()).any(|n| module.get(..n).is_some_and(|it| tests.contains(it)))
    });
    files
}

fn module_of(file: &Path) -> Vec<String> {
    let module = file.with_extension("");
    let parts = module.iter().map(|part| part.to_string_lossy().into_owned());
    parts.filter(|part| !["lib", "main"].contains(&part.as_str())).collect()
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
