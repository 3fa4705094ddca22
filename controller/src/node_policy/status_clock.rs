//! When the statuses of policies were written, and in the place of which versions.

use std::collections::HashMap;
use std::time::Duration;

use api::NodePolicy;
use kube::ResourceExt as _;
use tokio::time::Instant;

/// When statuses were last written, by uid, and which versions that made.
#[derive(Default)]
pub(crate) struct StatusClock(HashMap<String, WrittenStatus>);

struct WrittenStatus {
    at: Instant,
    /// The version that the watch had delivered, and the one that the write made of it.
    base: Option<String>,
    version: Option<String>,
}

impl StatusClock {
    /// The version that a write replaces: the last one that is known. A status of another leader is never overwritten unread.
    pub(crate) fn version(&self, object: &NodePolicy) -> Option<String> {
        let delivered = object.resource_version();
        let written = self.0.get(&object.uid().unwrap_or_default());
        let own = written.filter(|written| written.base == delivered).and_then(|written| written.version.clone());
        own.or(delivered)
    }

    pub(crate) fn note(&mut self, object: &NodePolicy, version: Option<String>) {
        let written = WrittenStatus { at: Instant::now(), base: object.resource_version(), version };
        self.0.insert(object.uid().unwrap_or_default(), written);
    }

    pub(crate) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// How long ago a status was written.
    pub(crate) fn age(&self, uid: &str) -> Option<Duration> {
        self.0.get(uid).map(|written| written.at.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_replaces_the_last_known_version() {
        let object = |version: &str| -> NodePolicy {
            let metadata = serde_json::json!({ "name": "web", "uid": "u", "resourceVersion": version });
            serde_json::from_value(serde_json::json!({ "metadata": metadata, "spec": { "settings": {} } })).unwrap()
        };
        let mut clock = StatusClock::default();
        assert_eq!(clock.version(&object("1")).as_deref(), Some("1"));
        clock.note(&object("1"), Some("2".to_owned()));
        assert_eq!(clock.version(&object("1")).as_deref(), Some("2"), "the watch is behind");
        assert_eq!(clock.version(&object("3")).as_deref(), Some("3"), "another program wrote since");
        clock.forget("u");
        assert_eq!(clock.version(&object("1")).as_deref(), Some("1"));
    }
}
