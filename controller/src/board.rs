//! What the controller shows to whoever asks by HTTP: health, readiness, metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use resident::server::{Answer, Answers, Asker};

use crate::metrics::Metrics;

/// Everything that can be asked for.
#[derive(Debug, Default)]
pub struct Board {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    role: AtomicU8,
}

/// What this process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// It has not yet asked for the lease.
    Starting = 0,
    /// Another one has the lease.
    Standby = 1,
    /// It has the lease and reads what there is to do.
    Reading = 2,
    /// It works.
    Working = 3,
}

impl Board {
    /// Notes what this process does.
    pub fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Relaxed);
        self.metrics.leads(matches!(role, Role::Reading | Role::Working));
    }

    /// What it does.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.role.load(Ordering::Relaxed) {
            1 => Role::Standby,
            2 => Role::Reading,
            3 => Role::Working,
            _ => Role::Starting,
        }
    }
}

impl Answers for Board {
    async fn answer(&self, path: &str, _: Asker) -> Answer {
        match path {
            // The process lives. One that cannot do its work ends by itself: with the lease it goes to the other.
            "/healthz" => Answer::text(200, "ok\n"),
            // A standby is ready: a rollout must not wait for the lease.
            "/readyz" => match self.role() {
                Role::Starting => Answer::text(503, "the API server has not answered yet\n"),
                Role::Standby => Answer::text(200, "standing by: another one has the lease\n"),
                Role::Reading => Answer::text(200, "has the lease; reads what there is to do\n"),
                Role::Working => Answer::text(200, "has the lease\n"),
            },
            "/metrics" => Answer::metrics(self.metrics.text()),
            _ => Answer::text(404, "nothing is here\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_standby_is_ready_and_one_that_never_reached_the_api_server_is_not() {
        let board = Board::default();
        assert_eq!(board.answer("/readyz", Asker::Anybody).await.status, 503);
        board.set_role(Role::Standby);
        assert_eq!(board.answer("/readyz", Asker::Anybody).await.status, 200);
        assert_eq!(board.answer("/healthz", Asker::Anybody).await.status, 200);
    }
}
