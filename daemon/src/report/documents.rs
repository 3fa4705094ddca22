//! The documents' tables are what the code says.

use std::path::Path;

use resident::explain;
use resident::metrics::markdown;

use crate::args::keys;
use crate::metrics::Metrics;
use crate::settings::Settings;

fn holds(document: &str, part: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(document);
    assert_eq!(documents::compare(&path, part, table), Ok(()));
}

#[test]
fn the_keys_are_documented() {
    holds("configuration.md", "keys", &explain::markdown(&keys()));
}

#[test]
fn the_shipped_configmap_has_every_key_and_sets_none() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base/agent.conf");
    let expected = explain::commented("oke-node-agent", &keys());
    assert_eq!(documents::compare_file(&path, &expected), Ok(()));
    assert_eq!(documents::check_commented::<Settings>(&expected, &keys()), Ok(()));
}

#[test]
fn the_metrics_are_documented() {
    let alerts = documents::alerts().unwrap();
    let action = |metric: &str| documents::action(&alerts, metric);
    holds("metrics.md", "metrics", &markdown(Metrics::default().descriptions(), action));
}

#[test]
fn the_conditions_are_documented() {
    holds("operator.md", "conditions", &documents::health_tables::conditions());
}

#[test]
fn health_signals_are_documented() {
    holds("signals.md", "signals", &documents::health_tables::signals());
    holds("privileges.md", "collectors", &documents::health_tables::privileges());
}

#[test]
fn each_key_has_meaning_and_flag_and_is_unique() {
    let keys = keys();
    let mut names: Vec<&str> = keys.iter().map(|key| key.name()).collect();
    for key in keys.iter() {
        assert!(key.meaning().len() > 10 && key.flag().len() > 3, "{key:?}");
        assert_eq!(keys.nearest(&key.flag()).as_deref(), Some(key.name()), "by its flag");
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
