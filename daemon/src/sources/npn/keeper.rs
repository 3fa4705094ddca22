//! Keeps the copy of the NativePodNetwork as the API server has it. That is said once, when it changes; so what could not be
//! written then (the disk was full, or read-only) is tried again whenever somebody asks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value;

use super::Kept;

/// The copy, and what is still to be written. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    kept: Kept,
    due: Arc<Mutex<Option<Due>>>,
}

/// What the copy lacks.
#[derive(Debug)]
struct Due {
    /// As it was seen; `None` where there is none any more.
    object: Option<Value>,
    seen: SystemTime,
}

impl Keeper {
    pub(super) fn new(kept: Kept) -> Self {
        Self { kept, due: Arc::default() }
    }

    /// What an agent that starts goes by.
    pub(super) const fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Writes what was seen just now; `None` removes the copy. Where that fails, it is due.
    pub(super) fn keep(&self, object: Option<Value>, now: SystemTime) {
        // Over the writing: nothing older is written after it.
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = self.kept.write(object.as_ref(), now).is_err().then_some(Due { object, seen: now });
    }

    /// Writes what is due, as of when it was seen.
    ///
    /// # Errors
    /// Why that still cannot be.
    pub(super) fn again(&self) -> Result<(), String> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Due { object, seen }) = &*due {
            let doing = if object.is_some() { "writing" } else { "removing" };
            let failed = |error| format!("{doing} {}: {error}", self.kept.path().display());
            self.kept.write(object.as_ref(), *seen).map_err(failed)?;
        }
        *due = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;
    use tokio::sync::watch;
    use vcn::Ocid;

    use super::*;
    use crate::sources::npn::{ClusterNpn, NativePodNetworks, Source};

    const MINUTE: Duration = Duration::from_secs(60);

    fn then() -> SystemTime {
        UNIX_EPOCH + MINUTE
    }

    fn object(id: &str) -> Option<Value> {
        Some(json!({ "kind": "NativePodNetwork", "metadata": { "name": "a" }, "spec": { "id": id } }))
    }

    fn instance(id: &str) -> Ocid {
        id.parse().unwrap()
    }

    const A: &str = "ocid1.instance.oc1.iad.a";

    #[tokio::test]
    async fn what_could_not_be_written_is_when_somebody_asks_and_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("lib");
        let keeper = Keeper::new(Kept::new(&place));
        let (wanted, _asked) = watch::channel(None);
        let (_watcher, seen) = watch::channel(Default::default());
        let source = Source::Cluster(ClusterNpn::new(wanted, seen, keeper.clone()));
        assert_eq!(source.keep().await, Ok(()));
        // There is no such directory.
        keeper.keep(object(A), then());
        for _ in 0..2 {
            let why = source.keep().await.unwrap_err();
            assert!(why.starts_with(&format!("writing {}: ", keeper.kept().path().display())), "{why}");
        }
        fs::create_dir(&place).unwrap();
        assert_eq!(source.keep().await, Ok(()));
        let (_, age) = keeper.kept().look(&instance(A), then() + MINUTE).unwrap().unwrap();
        assert_eq!(age, MINUTE, "it is as old as what was seen");
        fs::remove_file(keeper.kept().path()).unwrap();
        assert_eq!(source.keep().await, Ok(()));
        assert!(!keeper.kept().path().exists(), "it was written already");
    }

    #[test]
    fn one_that_could_not_be_removed_is_removed_later() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(Kept::new(folder.path()));
        fs::create_dir(keeper.kept().path()).unwrap();
        keeper.keep(None, then());
        let why = keeper.again().unwrap_err();
        assert!(why.starts_with("removing "), "{why}");
        fs::remove_dir(keeper.kept().path()).unwrap();
        fs::write(keeper.kept().path(), "{}").unwrap();
        assert_eq!(keeper.again(), Ok(()));
        assert!(!keeper.kept().path().exists());
    }

    #[test]
    fn what_was_seen_before_does_not_come_after_what_was_seen_since() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("lib");
        let keeper = Keeper::new(Kept::new(&place));
        keeper.keep(object("ocid1.instance.oc1.iad.old"), then());
        fs::create_dir(&place).unwrap();
        keeper.keep(object(A), then());
        assert_eq!(keeper.again(), Ok(()));
        assert!(keeper.kept().look(&instance(A), then()).unwrap().is_some());
    }
}
