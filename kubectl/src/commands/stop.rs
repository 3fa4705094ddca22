//! `stop`: halts all rollouts of the cluster, or lets them go on. The switch is a key of the controller's ConfigMap.

use command::page::Page;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tunables::view::{POLICIES_PATH, PoliciesView};
use vcn::{excerpt, printable};

use crate::answer::{Answer, Exit, Style};
use crate::cluster::Cluster;
use crate::failure::words;
use crate::leader;

/// The most characters of a reason: the admission policy takes a text of 256, with user and time.
const REASON_MAX: usize = 120;
/// The most characters of a user's name in it.
const USER_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StopState {
    /// Why all rollouts are stopped.
    #[serde(rename = "stopped", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why that is not known.
    #[serde(rename = "stopError", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What the switch was, and what it is now.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Switched {
    #[serde(flatten)]
    pub now: StopState,
    /// The reason that was written before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// Turns the switch on with a reason, or off.
pub(crate) async fn run(cluster: &Cluster, is_off: bool, reason: &[String]) -> anyhow::Result<Switched> {
    let before = cluster.stop_switch().await?;
    let text = match is_off {
        true => None,
        false => Some(text(&cluster.user().await, Timestamp::now(), &reason.join(" "))),
    };
    cluster.set_stop_switch(text.as_deref()).await?;
    Ok(Switched { now: StopState { reason: text, error: None }, before })
}

/// Who stopped, when and why.
fn text(user: &str, now: Timestamp, reason: &str) -> String {
    let now = now.round(k8s_openapi::jiff::Unit::Second).unwrap_or(now);
    let (user, reason) = (excerpt(user, USER_MAX), printable(reason.trim()));
    let by = if user.is_empty() { String::new() } else { format!(" by {user}") };
    let reason = if reason.is_empty() { String::new() } else { format!(": {}", excerpt(&reason, REASON_MAX)) };
    format!("since {now}{by}{reason}")
}

impl StopState {
    /// Read from the API server, or with --view-url from the leader.
    pub(crate) async fn read(cluster: &Cluster) -> Self {
        let reason = match cluster.target.view_url {
            Some(_) => leader::get::<PoliciesView>(cluster, POLICIES_PATH).await.map(|view| view.stopped),
            None => cluster.stop_switch().await,
        };
        match reason {
            Ok(reason) => Self { reason, error: None },
            Err(error) => Self { reason: None, error: Some(words(&error)) },
        }
    }

    pub(crate) fn show(&self, page: &mut Page) {
        if let Some(reason) = &self.reason {
            page.line(format_args!("All rollouts have been stopped {reason}"));
            page.line("Next: `kubectl oke-node stop --off` when the reason is gone.");
            page.line("");
        }
    }

    /// At the end: a missing right, or a controller of an earlier version, says nothing about the nodes.
    pub(crate) fn show_error(&self, page: &mut Page) {
        if let Some(error) = &self.error {
            page.line("");
            page.line(format_args!("It is unknown whether rollouts are stopped: {error}"));
        }
    }
}

impl Answer for Switched {
    fn exit(&self) -> Exit {
        Exit::Fine
    }

    fn show(&self, page: &mut Page, _style: Style) {
        match (&self.now.reason, &self.before) {
            (Some(reason), _) => {
                page.line(format_args!("All rollouts have been stopped {reason}"));
                page.line(
                    "Nodes keep their settings, including nodes in a rollback. Next: `kubectl oke-node stop --off`",
                );
            }
            (None, Some(before)) => page.line(format_args!("Rollouts continue. They had been stopped {before}")),
            (None, None) => page.line("Rollouts were not stopped."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_names_time_user_and_reason() {
        let now: Timestamp = "2026-11-29T00:10:00.5Z".parse().unwrap();
        assert_eq!(text("alice", now, " nodes fail\n"), "since 2026-11-29T00:10:01Z by alice: nodes fail");
        assert_eq!(text("", now, ""), "since 2026-11-29T00:10:01Z");
        let long = text(&"u".repeat(300), now, &"ä".repeat(300));
        assert!(long.chars().count() <= 256, "{long}");
    }
}
