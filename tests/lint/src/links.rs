//! Documents that name a file name one that exists: relative links with their anchors, and paths in `code` that start with a
//! folder or a file of the repository. Code blocks are left out: what they show may be on another machine.

use std::path::{Component, Path, PathBuf};

use crate::finding::Finding;
use crate::tree::Tree;

/// Documents at the root; everything under `docs/` counts too.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// Every link or path in our documents that leads nowhere.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.with_extension("md");
    let ours = documents
        .filter(|(file, _)| file.starts_with("docs") || DOCUMENTS.iter().any(|known| *file == Path::new(known)));
    ours.flat_map(|(file, text)| check_document(tree, file, text)).collect()
}

fn check_document(tree: &Tree, file: &Path, text: &str) -> Vec<Finding> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            continue;
        }
        let place = format!("{}:{}", file.display(), number + 1);
        let dead_links = link_targets(line).filter(|target| !leads_somewhere(tree, folder, target));
        findings.extend(
            dead_links.map(|target| Finding::new("links", place.clone(), format!("the link {target} leads nowhere"))),
        );
        let dead_anchors = link_targets(line).filter(|target| !has_anchor(tree, file, folder, target));
        findings.extend(
            dead_anchors
                .map(|target| Finding::new("links", place.clone(), format!("{target}: the page has no such heading"))),
        );
        let dead_paths = code_spans(line).filter(|span| names_nothing(tree, span));
        findings
            .extend(dead_paths.map(|span| Finding::new("links", place.clone(), format!("there is no file {span}"))));
    }
    findings
}

/// Targets of `[text](target "title")` and `[label]: target`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let plain = line.match_indices("](").filter_map(move |(at, open)| {
        let target = line.get(at + open.len()..)?.split(')').next()?;
        target.split_whitespace().next()
    });
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
    plain.chain(reference)
}

/// The texts between single backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a link to a heading of a document names one that is there.
fn has_anchor(tree: &Tree, file: &Path, folder: &Path, target: &str) -> bool {
    let Some((path, anchor)) = target.split_once('#').filter(|(path, _)| !path.contains("://")) else { return true };
    let document = if path.is_empty() { Some(file.to_owned()) } else { resolve(folder, path) };
    let text = document.filter(|it| it.extension().is_some_and(|known| known == "md")).and_then(|it| tree.text(&it));
    text.is_none_or(|text| anchors(text).any(|known| known == anchor))
}

/// The anchors of the headings, as GitHub makes them. Code blocks are left out.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let outside = text.split("```").step_by(2).flat_map(str::lines);
    let headings = outside.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    })
}

fn leads_somewhere(tree: &Tree, folder: &Path, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return true; // to the same document, or out of it
    }
    match path.strip_prefix('/') {
        Some(from_root) => resolve(Path::new(""), from_root),
        None => resolve(folder, path),
    }
    .is_some_and(|path| tree.has(&path))
}

/// Whether `span` reads as a path of this checkout (`crates/vcn/src`) and there is no such thing.
fn names_nothing(tree: &Tree, span: &str) -> bool {
    let path = span.trim_end_matches('/');
    let Some((top, _)) = path.split_once('/') else { return false };
    let ours = !top.is_empty() && tree.files().any(|file| file.starts_with(top) && file != Path::new(top));
    // Results of a build, and patterns such as crates/*/tests or golden/<sentence>, do not name a single file.
    let pattern = path.contains(['*', '<', '{', ' ', '…', '$', '=', ':']);
    ours && !pattern && !resolve(Path::new(""), path).is_some_and(|path| tree.has(&path))
}

/// `path` seen from `folder`; `None` when it leaves the checkout.
fn resolve(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut resolved = folder.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => resolved.pop().then_some(())?,
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(document: &str, text: &str) -> Vec<String> {
        let one = "# One\n```\n# no heading\n```\n## A `part`, too\n";
        let tree = Tree::of(&[(document, text), ("docs/one.md", one), ("crates/vcn/src/lib.rs", "")]);
        check_document(&tree, Path::new(document), text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_to_files_folders_and_the_web_pass() {
        let text = "# Here\n[a](docs/one.md#a-part-too) [b](docs/) [c](https://x/y.md#z) [d](#here) [e](crates/vcn)\n[f]: docs/one.md";
        assert_eq!(messages("README.md", text), [""; 0]);
        assert_eq!(
            messages("docs/decisions/two.md", "[a](../one.md) [b](/docs/one.md) [c](../../crates/vcn)"),
            [""; 0]
        );
    }

    #[test]
    fn a_dead_link_is_found() {
        let text = "fine\n[a](docs/two.md \"title\") and [b](../outside.md)\n[c]: docs/three.md";
        assert_eq!(
            messages("README.md", text),
            [
                "README.md:2: the link docs/two.md leads nowhere [links]",
                "README.md:2: the link ../outside.md leads nowhere [links]",
                "README.md:3: the link docs/three.md leads nowhere [links]",
            ]
        );
    }

    #[test]
    fn anchor_without_a_heading_is_found() {
        assert_eq!(
            messages("README.md", "[a](docs/one.md#no-heading) [b](#a-part-too)"),
            [
                "README.md:1: docs/one.md#no-heading: the page has no such heading [links]",
                "README.md:1: #a-part-too: the page has no such heading [links]",
            ]
        );
    }

    #[test]
    fn a_path_in_code_that_is_not_there_is_found() {
        let text =
            "`crates/vcn/src/lib.rs`, `crates/vcn/`, `crates/oci/src`, `/etc/cni/net.d`, `crates/*/tests`, `a/b`";
        assert_eq!(messages("README.md", text), ["README.md:1: there is no file crates/oci/src [links]"]);
    }

    #[test]
    fn code_blocks_are_left_out() {
        assert_eq!(messages("README.md", "```\n[a](nowhere.md) `crates/none/x`\n```\n"), [""; 0]);
    }

    #[test]
    fn only_our_documents_are_read() {
        let tree = Tree::of(&[("manifests/notes.md", "[a](nowhere)"), ("docs/x.md", "[a](nowhere)")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
