//! The alert rules of manifests/observability, for the tables that refer to them.

use std::path::Path;

/// A rule of manifests/observability/alerts.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alert {
    /// The name of the alert.
    pub name: String,
    /// The expression in PromQL.
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
