//! Compares the documents' tables with the code.

use std::path::{Path, PathBuf};

use api::{AttachmentReason, Reason as _};
use resident::explain;
use resident::metrics::markdown;

use crate::args::keys;
use crate::report::metrics::Metrics;
use crate::settings::Settings;

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/controller.md")
}

fn holds(part: &str, table: &str) {
    assert_eq!(documents::compare(&page(), part, table), Ok(()));
}

/// The expressions of the alert rules.
fn alerts() -> Vec<String> {
    documents::alerts().unwrap().into_iter().map(|alert| alert.expression).collect()
}

// One test, because both write the same file.
#[test]
fn keys_and_metrics_are_documented() {
    holds("keys", &explain::markdown(&keys()));
    let alerts = documents::alerts().unwrap();
    let action = |metric: &str| documents::action(&alerts, metric);
    holds("metrics", &markdown(Metrics::default().descriptions(), action));
}

#[test]
fn the_shipped_configmap_has_every_key_and_sets_none() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base/controller.conf");
    let expected = explain::commented("oke-node-controller", &keys());
    assert_eq!(documents::compare_file(&path, &expected), Ok(()));
    assert_eq!(documents::check_commented::<Settings>(&expected, &keys()), Ok(()));
}

#[test]
fn each_reason_for_an_unready_vnic_has_an_alert() {
    let is_on_ready = |reason: &&AttachmentReason| reason.on().contains(&api::condition::ConditionType::Ready);
    let alerts = alerts();
    for reason in AttachmentReason::ALL.iter().filter(is_on_ready) {
        let ready = format!("{:?}", reason.status());
        let fires = alerts.iter().filter_map(|alert| {
            let selector = alert.split("oke_node_controller_attachments{").nth(1)?.split('}').next()?;
            let (label, value) = selector.split_once('"').unwrap();
            let is = value.trim_end_matches('"') == ready;
            Some(match label {
                "ready=" => is,
                "ready!=" => !is,
                other => panic!("{other}"),
            })
        });
        assert_eq!(fires.collect::<Vec<_>>(), [ready != "True"], "{}", reason.as_str());
    }
}
