//! Pages of docs/: an index by reader that lists all of them, commands that name existing manifests, and a runbook that covers
//! the known complaints.

use std::collections::BTreeSet;
use std::fs;

use crate::{read, root};

fn pages() -> BTreeSet<String> {
    let files = fs::read_dir(root().join("docs")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    files.filter(|name| name.ends_with(".md")).collect()
}

#[test]
fn the_index_lists_every_page() {
    let index = read("docs/README.md");
    for page in pages().iter().filter(|page| *page != "README.md") {
        assert!(index.contains(&format!("]({page}")), "docs/README.md does not list {page}");
    }
}

/// Words of a page that look like paths of the repository.
fn paths(page: &str) -> BTreeSet<String> {
    let words = page.split(|c: char| c.is_whitespace() || "`()[],;".contains(c));
    let starts = ["manifests/", "tests/", "image/", "docs/"];
    let paths = words.filter(|word| starts.iter().any(|start| word.starts_with(start)));
    let literal = paths.filter(|word| !word.contains(['*', '{', '<', '$']) && !word.contains("KIND"));
    literal.map(|word| word.split(['#', ':']).next().unwrap().trim_end_matches('.').to_owned()).collect()
}

#[test]
fn each_path_in_a_page_exists() {
    for page in pages() {
        for path in paths(&read(&format!("docs/{page}"))) {
            assert!(root().join(&path).exists(), "docs/{page} names {path}");
        }
    }
}
