//! The documents' tables are what the code says.

use std::path::Path;

use resident::config::explain;
use resident::metrics::markdown;

use crate::args::keys;
use crate::metrics::Metrics;

fn holds(part: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/controller.md");
    assert_eq!(resident::documents::compare(&path, part, table), Ok(()));
}

// One test, for both write the same file.
#[test]
fn the_keys_and_the_metrics_are_documented() {
    holds("keys", &explain::markdown(&keys()));
    holds("metrics", &markdown(Metrics::default().described()));
}
