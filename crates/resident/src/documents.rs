//! Keeps documents and files of commented keys equal to the code, for tests.

use std::fmt::Debug;
use std::path::Path;

use crate::config::keys::{Key, Keys};
use crate::config::{Layers, ProgramSettings, file};

/// Compares the part of a document between its markers `<!-- begin: part -->` and `<!-- end: part -->` with what the code
/// says; writes it when `UPDATE_DOCS` is set.
///
/// # Errors
/// What is wrong, for a test to show.
pub fn compare(path: &Path, part: &str, table: &str) -> Result<(), String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let (begin, end) = (format!("<!-- begin: {part} -->\n"), format!("<!-- end: {part} -->"));
    let lacks = || format!("{shown} has no part {part}");
    let (before, rest) = text.split_once(&begin).ok_or_else(lacks)?;
    let (found, after) = rest.split_once(&end).ok_or_else(lacks)?;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path, format!("{before}{begin}{table}{end}{after}"))
            .map_err(|error| format!("{shown}: {error}"));
    }
    if found == table { Ok(()) } else { Err(format!("{shown} is not what the code says: UPDATE_DOCS=1 writes it")) }
}

/// Compares a whole file with what the code says; writes it when `UPDATE_DOCS` is set.
///
/// # Errors
/// What is wrong, for a test to show.
pub fn compare_file(path: &Path, wanted: &str) -> Result<(), String> {
    let shown = path.display();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path, wanted).map_err(|error| format!("{shown}: {error}"));
    }
    let found = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    if found == wanted { Ok(()) } else { Err(format!("{shown} is not what the code says: UPDATE_DOCS=1 writes it")) }
}

/// A rule of manifests/observability/alerts.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// Its expression.
    pub expression: String,
    /// The section of docs/troubleshoot.md, with the `#`.
    pub section: String,
}

/// The alert rules, each field on one line.
///
/// # Errors
/// When the file cannot be read.
pub fn alerts() -> Result<Vec<Alert>, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/observability/alerts.yaml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut alerts: Vec<Alert> = Vec::new();
    for line in text.lines() {
        let line = line.trim().trim_start_matches("- ");
        match (line.split_once(": "), alerts.last_mut()) {
            (Some(("alert", name)), _) => alerts.push(Alert { name: name.to_owned(), ..Alert::default() }),
            (Some(("expr", text)), Some(alert)) => text.clone_into(&mut alert.expression),
            (Some(("runbook_url", url)), Some(alert)) => {
                alert.section =
                    url.split_once("docs/troubleshoot.md").map(|(_, section)| section.to_owned()).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(alerts)
}

/// What to do about a metric: the sections of the alerts that use it.
pub fn action(alerts: &[Alert], metric: &str) -> String {
    let uses = |alert: &&Alert| {
        let names = alert.expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        names.into_iter().any(|name| {
            name.strip_prefix(metric).is_some_and(|rest| matches!(rest, "" | "_count" | "_bucket" | "_sum"))
        })
    };
    let links = alerts.iter().filter(uses).map(|it| format!("[{}](troubleshoot.md{})", it.name, it.section));
    let links = links.collect::<Vec<_>>().join(", ");
    if links.is_empty() { "– (context)".to_owned() } else { links }
}

/// What is wrong with a file of commented keys: as it is it must set nothing, and with every key's `#` removed it must make the
/// same settings as no file at all.
///
/// # Errors
/// What is wrong, for a test to show.
pub fn check_commented<S: ProgramSettings + Debug>(text: &str, keys: &Keys) -> Result<(), String> {
    let set = pairs(text)?;
    if !set.is_empty() {
        return Err(format!("it sets {set:?}"));
    }
    let is_key =
        |line: &str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let uncommented = text.lines().map(|line| if is_key(line) { line.trim_start_matches('#') } else { line });
    let set = pairs(&uncommented.collect::<Vec<_>>().join("\n"))?;
    if !set.iter().map(|(key, _)| key.as_str()).eq(keys.iter().map(Key::name)) {
        return Err(format!("it has other keys than there are: {set:?}"));
    }
    let settings = |environment| {
        let read = Layers { environment, ..Layers::default() }.read(keys);
        read.settings::<S>(keys).map(|settings| format!("{settings:?}")).map_err(|problems| format!("{problems:?}"))
    };
    let (all, none) = (settings(set)?, settings(Vec::new())?);
    if all == none { Ok(()) } else { Err(format!("its defaults make {all}\nno file makes {none}")) }
}

/// The keys that a file sets, in its order.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let (given, problems) = file::parse(Path::new(""), text);
    let pairs = given.into_iter().map(|(key, given)| (key, given.value)).collect();
    if problems.is_empty() { Ok(pairs) } else { Err(format!("{problems:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_that_differs_or_lacks_the_part_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        std::fs::write(&path, "x\n<!-- begin: keys -->\nold\n<!-- end: keys -->\n").unwrap();
        assert_eq!(compare(&path, "keys", "old\n"), Ok(()));
        assert!(compare(&path, "others", "old\n").unwrap_err().contains("has no part others"));
        if std::env::var_os("UPDATE_DOCS").is_none() {
            assert!(compare(&path, "keys", "new\n").unwrap_err().contains("is not what the code says"));
        }
    }
}
