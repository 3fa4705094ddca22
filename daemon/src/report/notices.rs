//! Conditions of tasks other than the reconcile: the ports, the configuration file, raised limits. The reconcile loop adds them
//! to its report.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::facts::condition::Condition;

/// Conditions by the task's name.
pub(crate) type Notes = BTreeMap<&'static str, Vec<Condition>>;

/// What a task reports, until it reports something else.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    task: &'static str,
    notes: watch::Sender<Notes>,
}

impl Notices {
    /// The notices of all tasks, and their receiver.
    pub(crate) fn channel() -> (watch::Sender<Notes>, watch::Receiver<Notes>) {
        watch::channel(Notes::new())
    }

    /// The notices of one task.
    pub(crate) fn of(task: &'static str, notes: &watch::Sender<Notes>) -> Self {
        Self { task, notes: notes.clone() }
    }

    /// Replaces what the task reported.
    pub(crate) fn report(&self, conditions: impl IntoIterator<Item = Condition>) {
        let now: Vec<Condition> = conditions.into_iter().collect();
        self.notes.send_if_modified(|notes| {
            let before = notes.insert(self.task, now.clone()).unwrap_or_default();
            before != now
        });
    }
}
