//! Budgets: how large a package may be. The table of `docs/crates.md` has each package's size, and its budget: the size when the
//! budget was set, plus 5 %. Code is removed or shared before a budget is raised.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::finding::Finding;
use crate::product::product_files;
use crate::source::blank;
use crate::tree::Tree;
use crate::workspace::Workspace;

const PAGE: &str = "docs/crates.md";
const BEGIN: &str = "<!-- begin: crates -->\n";
const END: &str = "<!-- end: crates -->";
const HEAD: &str = "| folder | purpose | lines of code | lines of tests | budget |\n|---|---|---|---|---|\n";

/// By how much a package may grow until its budget is set again.
const GROWTH_PERCENT: usize = 5;

/// A package's row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrateRow {
    purpose: String,
    code: usize,
    tests: usize,
    budget: usize,
}

/// The rows by the folder of their package.
pub type CrateTable = BTreeMap<PathBuf, CrateRow>;

/// The packages as they are, each with the budget that follows from its size. A line counts if it has code, not only a comment or
/// a part of a literal.
#[must_use]
pub fn measured(workspace: &Workspace, tree: &Tree) -> CrateTable {
    let folders: Vec<&Path> = workspace.packages.iter().map(|package| workspace.folder(package)).collect();
    let row = |(package, folder): (&crate::workspace::Package, &&Path)| {
        let is_own = |file: &Path| folders.iter().filter(|it| file.starts_with(it)).all(|it| folder.starts_with(it));
        let own = tree.with_extension("rs").filter(|(file, _)| file.starts_with(folder) && is_own(file));
        let all: usize = own.map(|(_, text)| lines(&blank(text))).sum();
        let code = product_files(tree, &folder.join("src")).iter().map(|file| lines(&file.code)).sum();
        let budget = all + (all * GROWTH_PERCENT).div_ceil(100);
        let purpose = package.description.clone().unwrap_or_default();
        ((*folder).to_owned(), CrateRow { purpose, code, tests: all - code, budget })
    };
    workspace.packages.iter().zip(&folders).map(row).collect()
}

/// Packages above their budget, and those without one.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let table = match tree.text(Path::new(PAGE)).context("it is missing").and_then(table_of) {
        Ok(table) => table,
        Err(error) => return vec![Finding::new("budgets", PAGE, format!("{error:#}"))],
    };
    let fault = |(folder, now): (PathBuf, CrateRow)| {
        let size = now.code + now.tests;
        let message = match table.get(&folder) {
            None => format!("it has no row in {PAGE}: run `make budgets FOLDER={}`", folder.display()),
            Some(row) if size > row.budget => format!(
                "{size} lines, more than its budget of {}: remove or share code; if all of it is needed, run `make budgets FOLDER={}`",
                row.budget,
                folder.display()
            ),
            Some(_) => return None,
        };
        Some(Finding::new("budgets", folder.display().to_string(), message))
    };
    measured(workspace, tree).into_iter().filter_map(fault).collect()
}

/// Measures these packages, or all if none is named, and writes their rows. The rows of others keep their numbers.
///
/// # Errors
/// When a folder is not a package, or the page cannot be read or written.
pub fn set(root: &Path, workspace: &Workspace, tree: &Tree, folders: &[PathBuf]) -> anyhow::Result<()> {
    let measured = measured(workspace, tree);
    if let Some(unknown) = folders.iter().find(|folder| !measured.contains_key(*folder)) {
        bail!("{} is not the folder of a package", unknown.display());
    }
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("read {PAGE}"))?;
    let is_set = |folder: &PathBuf| folders.is_empty() || folders.contains(folder);
    let table = updated(&measured, &table_of(&page)?, is_set);
    std::fs::write(&path, with_table(&page, &table)?).with_context(|| format!("write {PAGE}"))
}

/// The measured packages with the numbers of the table, except new packages and those whose budget `is_set` now.
fn updated(measured: &CrateTable, table: &CrateTable, is_set: impl Fn(&PathBuf) -> bool) -> CrateTable {
    let row = |(folder, now): (&PathBuf, &CrateRow)| {
        let row = match table.get(folder).filter(|_| !is_set(folder)) {
            Some(row) => CrateRow { purpose: now.purpose.clone(), ..row.clone() },
            None => now.clone(),
        };
        (folder.clone(), row)
    };
    measured.iter().map(row).collect()
}

fn lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// The text before the table, its rows, and the text after it.
fn parts(page: &str) -> anyhow::Result<(&str, &str, &str)> {
    let (before, rest) = page.split_once(BEGIN).context("it has no part crates")?;
    let (rows, after) = rest.split_once(END).context("its part crates has no end")?;
    Ok((before, rows, after))
}

fn table_of(page: &str) -> anyhow::Result<CrateTable> {
    let (_, rows, _) = parts(page)?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [folder, purpose, code, tests, budget] = cells[..] else { bail!("not a row with five cells: {line}") };
        let number = |cell: &str| cell.parse().with_context(|| format!("not a number in {line}"));
        let (code, tests, budget) = (number(code)?, number(tests)?, number(budget)?);
        Ok((folder.trim_matches('`').into(), CrateRow { purpose: purpose.to_owned(), code, tests, budget }))
    };
    rows.lines().skip(HEAD.lines().count()).map(row).collect()
}

/// The page with another table.
fn with_table(page: &str, table: &CrateTable) -> anyhow::Result<String> {
    let (before, _, after) = parts(page)?;
    let row = |(folder, row): (&PathBuf, &CrateRow)| {
        let CrateRow { purpose, code, tests, budget } = row;
        format!("| `{}` | {purpose} | {code} | {tests} | {budget} |\n", folder.display())
    };
    Ok([before, BEGIN, HEAD, &table.iter().map(row).collect::<String>(), END, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        let package = |folder: &str| {
            serde_json::json!({
                "name": folder, "description": format!("Purpose of {folder}"), "manifest_path": format!("/w/{folder}/Cargo.toml"),
            })
        };
        let packages = [package("a"), package("a/b")];
        serde_json::from_value(serde_json::json!({ "packages": packages, "workspace_root": "/w" })).unwrap()
    }

    fn page(rows: &str) -> String {
        format!("# Crates\n{BEGIN}{HEAD}{rows}{END}\n")
    }

    const ROWS: &str = "| `a` | Purpose of a | 2 | 2 | 5 |\n| `a/b` | Purpose of a/b | 20 | 0 | 21 |\n";

    fn found(rows: &str, long: usize) -> Vec<String> {
        let long = "let x = 1;\n".repeat(long);
        let tree = Tree::of(&[
            (PAGE, &page(rows)),
            ("a/src/lib.rs", "//! Text.\n\nmod c; // why\n#[cfg(test)]\nmod tests {}\n/// More.\nfn f() {}\n"),
            ("a/b/src/lib.rs", &long),
        ]);
        check(&workspace(), &tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn package_above_its_budget_or_without_one_is_found() {
        assert_eq!(found(ROWS, 21), [""; 0]);
        let above = "a/b: 22 lines, more than its budget of 21: remove or share code; if all of it is needed, run `make budgets FOLDER=a/b` [budgets]";
        assert_eq!(found(ROWS, 22), [above]);
        let first = ROWS.lines().next().unwrap();
        assert_eq!(
            found(&format!("{first}\n"), 1),
            ["a/b: it has no row in docs/crates.md: run `make budgets FOLDER=a/b` [budgets]"]
        );
        assert_eq!(found("| x |\n", 1), ["docs/crates.md: not a row with five cells: | x | [budgets]"]);
    }

    #[test]
    fn set_budgets_change_only_rows_that_are_named() {
        let tree = Tree::of(&[("a/src/lib.rs", "fn f() {}\n"), ("a/b/src/lib.rs", &"fn g() {}\n".repeat(40))]);
        let measured = measured(&workspace(), &tree);
        let table = updated(&measured, &table_of(&page(ROWS)).unwrap(), |folder| folder.ends_with("b"));
        let expected = "| `a` | Purpose of a | 2 | 2 | 5 |\n| `a/b` | Purpose of a/b | 40 | 0 | 42 |\n";
        assert_eq!(with_table(&page(ROWS), &table).unwrap(), page(expected));
    }

    /// `UPDATE_DOCS=1` adds and removes rows; `make budgets` also measures.
    #[test]
    fn documents_table_has_every_package_with_its_purpose() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let (workspace, tree) = (Workspace::load(&root).unwrap(), Tree::read(&root).unwrap());
        let page = tree.text(Path::new(PAGE)).unwrap();
        let table = updated(&measured(&workspace, &tree), &table_of(page).unwrap(), |_| false);
        let expected = with_table(page, &table).unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root.join(PAGE), expected).unwrap();
        } else {
            assert!(page == expected, "{PAGE} is not what the code says: UPDATE_DOCS=1 writes it");
        }
    }
}
