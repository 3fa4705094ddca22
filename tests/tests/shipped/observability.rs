//! Alert rules and dashboard: each expression is PromQL of metrics and labels that the programs export. The tables of
//! docs/metrics.md and docs/controller.md are generated from the registries of the programs, so they list all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use promql_parser::label::Labels;
use promql_parser::parser::{self, AggregateExpr, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde::Deserialize;
use serde_json::Value;

use crate::{anchors, read, root};

const RULES: &str = "manifests/observability/alerts.yaml";
const DASHBOARD: &str = "manifests/observability/dashboard.json";
/// Prometheus adds these to each sample of a scrape.
const OF_SCRAPES: [&str; 3] = ["instance", "job", "pod"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name")]
    _name: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    duration: Option<String>,
    labels: Severity,
    annotations: Annotations,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Severity {
    severity: String,
}

/// What each rule must say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    summary: String,
    cause: String,
    effect: String,
    runbook_url: String,
}

/// A page below the home of the repository, which its owner sets in Cargo.toml.
fn page_of(url: &str) -> &str {
    let home = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");
    url.strip_prefix(home).unwrap_or_else(|| panic!("{url} is not below {home}"))
}

fn rules() -> Vec<Rule> {
    let rules: Rules = serde_yaml_ng::from_str(&read(RULES)).unwrap();
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// The exported series and their labels, from the generated tables.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::new();
    for page in ["docs/metrics.md", "docs/controller.md"] {
        let text = read(page);
        let table =
            text.split("<!-- begin: metrics -->").nth(1).unwrap().split("<!-- end: metrics -->").next().unwrap();
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let name = cells[1].trim_matches('`');
            let labels: BTreeSet<String> =
                cells[3].split(',').map(|it| it.trim().trim_matches('`').to_owned()).collect();
            let ends: &[&str] = if cells[2] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            for end in ends {
                let mut labels = labels.clone();
                labels.extend((*end == "_bucket").then(|| "le".to_owned()));
                series.insert(format!("{name}{end}"), labels);
            }
        }
    }
    assert!(series.len() > 40, "{series:?}");
    series
}

/// Collects what is wrong with an expression.
struct Check<'a> {
    exported: &'a BTreeMap<String, BTreeSet<String>>,
    /// The labels of all metrics of the expression.
    labels: BTreeSet<String>,
    grouped_by: Vec<String>,
    problems: Vec<String>,
    selectors: usize,
}

impl Check<'_> {
    fn selector(&mut self, selector: &VectorSelector) {
        self.selectors += 1;
        let name = selector.name.clone().unwrap_or_default();
        let Some(labels) = self.exported.get(&name) else {
            self.problems.push(format!("no program exports {name}"));
            return;
        };
        for matcher in &selector.matchers.matchers {
            if !labels.contains(&matcher.name) && !OF_SCRAPES.contains(&matcher.name.as_str()) {
                self.problems.push(format!("{name} has no label {}", matcher.name));
            }
        }
        self.labels.extend(labels.iter().cloned());
    }

    fn grouping(&mut self, Labels { labels }: &Labels) {
        self.grouped_by.extend(labels.iter().cloned());
    }
}

impl ExprVisitor for Check<'_> {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs),
            Expr::Aggregate(AggregateExpr { modifier: Some(modifier), .. }) => match modifier {
                LabelModifier::Include(labels) | LabelModifier::Exclude(labels) => self.grouping(labels),
            },
            _ => {}
        }
        Ok(true)
    }
}

/// What is wrong with an expression.
fn problems(expression: &str) -> Vec<String> {
    let exported = exported();
    let mut check = Check {
        exported: &exported,
        labels: BTreeSet::new(),
        grouped_by: Vec::new(),
        problems: Vec::new(),
        selectors: 0,
    };
    match parser::parse(expression) {
        Ok(expr) => walk_expr(&mut check, &expr).map(drop).unwrap(),
        Err(error) => return vec![format!("{expression}: {error}")],
    }
    for label in &check.grouped_by {
        if !check.labels.contains(label) && !OF_SCRAPES.contains(&label.as_str()) {
            check.problems.push(format!("no metric of it has the label {label}"));
        }
    }
    if check.selectors == 0 {
        check.problems.push("it uses no metric".to_owned());
    }
    check.problems
}

#[test]
fn a_wrong_expression_is_found() {
    assert_eq!(problems("oke_node_agent_ready == 0"), [""; 0]);
    for wrong in [
        "oke_node_agent_ready ==",
        "oke_node_agent_unready",
        "oke_node_agent_condition{color=\"red\"}",
        "sum by (color) (oke_node_agent_condition)",
        "rate(oke_node_agent_reconcile_seconds[5m])",
        "vector(1)",
    ] {
        assert_eq!(problems(wrong).len(), 1, "{wrong}: {:?}", problems(wrong));
    }
}

#[test]
fn each_alert_uses_exported_metrics_and_names_its_runbook() {
    let sections = anchors(&read("docs/troubleshoot.md"));
    let mut names = BTreeSet::new();
    for rule in rules() {
        let Rule { alert, expr, duration, labels, annotations } = rule;
        assert_eq!(problems(&expr), [""; 0], "{alert}");
        assert!(names.insert(alert.clone()), "{alert} is there twice");
        assert!(["critical", "warning", "info"].contains(&labels.severity.as_str()), "{alert}");
        assert!(duration.is_none_or(|text| text.ends_with('m')), "{alert}");
        assert!(annotations.cause.ends_with('.') && annotations.effect.ends_with('.'), "{alert}");
        let summary = &annotations.summary;
        assert!(summary.len() <= 120 && !summary.ends_with('.') && !summary.contains('`'), "{alert}: {summary}");
        for label in summary.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap()) {
            let is_kept =
                expr.contains(&format!("{label},")) || expr.contains(&format!("{label})")) || !expr.contains(" by (");
            assert!(is_kept, "{alert}: the result has no label {label}");
        }
        let section = page_of(&annotations.runbook_url).strip_prefix("docs/troubleshoot.md#").unwrap();
        assert!(sections.contains(section), "{alert}: docs/troubleshoot.md has no section #{section}: {sections:?}");
    }
}

/// The tables of docs/ are made from these fields, line by line.
#[test]
fn documents_read_the_same_alerts_as_prometheus() {
    let read = documents::alerts().unwrap();
    let parsed = rules();
    assert_eq!(read.len(), parsed.len());
    for (one, other) in read.iter().zip(&parsed) {
        let page = format!("docs/troubleshoot.md{}", one.section);
        assert_eq!(
            (&one.name, &one.expression, &page),
            (&other.alert, &other.expr, &page_of(&other.annotations.runbook_url).to_owned())
        );
    }
}

#[test]
fn the_table_of_alerts_is_documented() {
    let mut table = String::from("| alert | expression | for | cause | effect |\n|---|---|---|---|---|\n");
    for Rule { alert, expr, duration, labels, annotations } in rules() {
        let section = page_of(&annotations.runbook_url).trim_start_matches("docs/");
        let _ = writeln!(
            table,
            "| [{alert}]({section}), {} | `{}` | {} | {} | {} |",
            labels.severity,
            expr.replace('|', "\\|"),
            duration.unwrap_or_else(|| "0".to_owned()),
            annotations.cause,
            annotations.effect
        );
    }
    assert_eq!(documents::compare(&root().join("docs/alerts.md"), "alerts", &table), Ok(()));
}

#[test]
fn each_panel_uses_exported_metrics() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut expressions = 0;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}");
        for target in panel["targets"].as_array().unwrap() {
            expressions += 1;
            assert_eq!(problems(target["expr"].as_str().unwrap()), [""; 0], "{}", panel["title"]);
        }
    }
    assert!(expressions > 20);
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}
