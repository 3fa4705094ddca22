//! Answers HTTP requests for health, readiness and metrics.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use resident::server::{Answer, Caller, Handler};

use crate::cluster::store::Watches;
use crate::report::metrics::Metrics;

/// All that can be requested.
#[derive(Default)]
pub(crate) struct StatusServer {
    pub metrics: Arc<Metrics>,
    /// The state of the watches, once it is the leader.
    pub watches: Arc<Watches>,
    role: AtomicU8,
    /// What it waits for before it requests the Lease.
    waits_for: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// It has not requested the Lease yet.
    Starting = 0,
    /// Another replica is the leader.
    Standby = 1,
    /// It is the leader and reads its objects.
    Reading = 2,
    Working = 3,
}

impl StatusServer {
    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::Relaxed);
        self.metrics.leads.set(i64::from(matches!(role, Role::Reading | Role::Working)));
    }

    /// Records what it waits for before it requests the Lease. Returns whether that changed.
    pub(crate) fn waits_for(&self, what: Option<String>) -> bool {
        self.metrics.connected.set(i64::from(what.is_none()));
        let mut now = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, what.clone()) != what
    }

    fn readiness(&self) -> Answer {
        let said = match self.role() {
            Role::Starting => {
                let waits = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let why = waits.unwrap_or_else(|| "the API server has not answered yet".to_owned());
                return Answer::text(503, &format!("{why}\n"));
            }
            // A standby is ready: a rollout must not wait for the lease.
            Role::Standby => return Answer::text(200, "standby: another replica is the leader\n"),
            Role::Reading => "leader; reading objects\n",
            Role::Working => "leader\n",
        };
        // A rollout must wait for rights and kinds that the new version needs.
        match self.watches.trouble() {
            Some(trouble) => Answer::text(503, &format!("leader; {trouble}\n")),
            None => Answer::text(200, said),
        }
    }

    pub(crate) fn role(&self) -> Role {
        match self.role.load(Ordering::Relaxed) {
            1 => Role::Standby,
            2 => Role::Reading,
            3 => Role::Working,
            _ => Role::Starting,
        }
    }
}

impl Handler for StatusServer {
    async fn answer(&self, path: &str, _: Caller) -> Answer {
        match path {
            // The process lives. One that cannot work exits by itself, and the other replica takes the Lease.
            "/healthz" => Answer::text(200, "ok\n"),
            "/readyz" => self.readiness(),
            "/metrics" => Answer::metrics(self.metrics.text()),
            _ => Answer::text(404, "not found\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_standby_is_ready_once_it_reached_the_api_server() {
        let status_server = StatusServer::default();
        assert_eq!(status_server.answer("/readyz", Caller::AnyUser).await.status, 503);
        status_server.set_role(Role::Standby);
        assert_eq!(status_server.answer("/readyz", Caller::AnyUser).await.status, 200);
        assert_eq!(status_server.answer("/healthz", Caller::AnyUser).await.status, 200);
    }

    #[tokio::test]
    async fn readiness_names_the_missing_oci_client() {
        let status_server = StatusServer::default();
        let why = || Some("no region: IMDS is silent".to_owned());
        assert!(status_server.waits_for(why()) && !status_server.waits_for(why()));
        let answer = status_server.answer("/readyz", Caller::AnyUser).await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "no region: IMDS is silent\n"));
        assert!(status_server.metrics.text().contains("oke_node_controller_oci_client 0"));
        assert!(status_server.waits_for(None));
        assert!(status_server.metrics.text().contains("oke_node_controller_oci_client 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_read_its_objects_is_unready() {
        let status_server = StatusServer::default();
        for role in [Role::Reading, Role::Working] {
            status_server.set_role(role);
            status_server.watches.reads("Nodes");
            status_server.watches.failed("Nodes", "forbidden".to_owned());
            assert_eq!(status_server.answer("/readyz", Caller::AnyUser).await.status, 200, "for a moment");
            tokio::time::advance(std::time::Duration::from_secs(130)).await;
            let answer = status_server.answer("/readyz", Caller::AnyUser).await;
            let body = "leader; Nodes not read for 130 s: forbidden\n";
            assert_eq!((answer.status, answer.body.as_str()), (503, body));
            status_server.watches.is_current("Nodes");
            assert_eq!(status_server.answer("/readyz", Caller::AnyUser).await.status, 200);
        }
    }
}
