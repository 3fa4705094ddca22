//! House checks: rules of this workspace that no other tool checks. Each check is one
//! module with a `check` function that gives back its findings; none of them changes anything.
//!
//! ```text
//!   cargo metadata ──▶ workspace ─┬─▶ floors       who may depend on whom
//!                                 ├─▶ linkage      what a plugin may link
//!                                 ├─▶ portable     kubectl's plugin runs on other systems than Linux
//!                                 ├─▶ manifests    inherited lints and versions
//!                                 └─▶ modules      every file is declared by another
//!   the files ───────▶ tree ──────┬─▶ headers      what a file is for, its length, no unsafe code in all of it
//!                      source     ├─▶ clocks       no socket where the clock is paused
//!                      functions  ├─▶ budgets      how large a package may be
//!                      product    ├─▶ circles      no modules of a crate import each other
//!                                 ├─▶ containers   what tests start only in a container
//!                                 ├─▶ ignored      who runs a test that is ignored
//!                                 ├─▶ tuples       no parameter is a tuple
//!                                 ├─▶ type_names   no name of a type in prose
//!                                 ├─▶ links        paths named in documents exist
//!                                 ├─▶ words        plain words in strings, comments and documents
//!                                 ├─▶ names        plain words in identifiers
//!                                 ├─▶ prose        faults of sentences and tables that a pattern finds; older: exempt files
//!                                 └─▶ sentences    length of sentences in documents
//! ```

pub mod budgets;
pub mod circles;
pub mod clocks;
pub mod containers;
pub mod finding;
pub mod floors;
pub mod functions;
pub mod headers;
pub mod ignored;
pub mod linkage;
pub mod links;
pub mod manifests;
pub mod modules;
pub mod names;
pub mod older;
pub mod portable;
pub mod product;
pub mod prose;
pub mod sentences;
pub mod source;
pub mod tree;
pub mod tuples;
pub mod type_names;
pub mod words;
pub mod workspace;

use std::path::{Path, PathBuf};

use anyhow::Context;

pub use finding::Finding;
use older::OlderFiles;
use tree::Tree;
use workspace::Workspace;

/// Runs every check on the workspace at `root` and prints the findings. True when there are none.
///
/// # Errors
/// When cargo or the files cannot be read: then nothing is known about the tree.
pub fn check(root: &Path) -> anyhow::Result<bool> {
    let root = root.canonicalize().with_context(|| format!("find the workspace {}", root.display()))?;
    let workspace = Workspace::load(&root)?;
    let tree = Tree::read(&root)?;

    let mut findings = floors::check(&workspace);
    for plugin in workspace.plugins() {
        findings.extend(linkage::check(&plugin.name, &linkage::linked_crates(&root, &plugin.name, None)?));
    }
    findings.extend(linkage::check_without(&root)?);
    findings.extend(portable::check(&root, &workspace, &tree)?);
    findings.extend(manifests::check(&workspace, &tree));
    findings.extend(modules::check(&workspace, &tree));
    findings.extend(headers::check(&tree));
    findings.extend(budgets::check(&workspace, &tree));
    findings.extend(circles::check(&workspace, &tree));
    findings.extend(clocks::check(&workspace, &tree));
    findings.extend(containers::check(&tree));
    findings.extend(ignored::check(&tree));
    findings.extend(tuples::check(&tree));
    findings.extend(type_names::check(&tree));
    findings.extend(links::check(&tree));
    findings.extend(words::check(&root, &tree)?);
    findings.extend(names::check(&tree));
    let older = OlderFiles::read(&root)?;
    findings.extend(older.without_exempt("prose", prose::check(&tree)));
    findings.extend(sentences::check(&tree));

    for finding in &findings {
        println!("{finding}");
    }
    let packages = workspace.packages.len();
    println!("house-lint: {packages} packages, {} files, {} findings", tree.files().count(), findings.len());
    Ok(findings.is_empty())
}

/// Sets the budgets of these packages, or of all if none is named.
///
/// # Errors
/// When a folder is not a package, or files cannot be read or written.
pub fn set_budgets(root: &Path, folders: &[PathBuf]) -> anyhow::Result<()> {
    let root = root.canonicalize().with_context(|| format!("find the workspace {}", root.display()))?;
    budgets::set(&root, &Workspace::load(&root)?, &Tree::read(&root)?, folders)
}
