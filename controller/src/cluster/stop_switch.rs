//! The stop switch of the cluster: a key of the controller's ConfigMap, which the leader watches. Any value except an empty one
//! or `false` stops all rollouts.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use resident::logging::chain;
use tokio::sync::watch;
use vcn::{excerpt, printable};

/// The ConfigMap, as in manifests/base/kustomization.yaml.
const NAME: &str = "oke-node-controller";
pub(crate) const KEY: &str = "stop";
/// The most characters of the reason.
const REASON_MAX: usize = 120;

/// What is known of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StopSwitch {
    /// It was not read yet: nothing is sent.
    #[default]
    Unknown,
    Off,
    /// With the reason that was written.
    On(String),
}

impl StopSwitch {
    /// Why nothing may be sent.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Unknown => Some("the stop switch has not been read yet"),
            Self::Off => None,
            Self::On(reason) => Some(reason),
        }
    }

    fn of(data: Option<&BTreeMap<String, String>>) -> Self {
        match data.and_then(|data| data.get(KEY)).map(|text| text.trim()) {
            None | Some("" | "false") => Self::Off,
            Some(reason) => Self::On(excerpt(&printable(reason), REASON_MAX).into_owned()),
        }
    }
}

/// Follows the switch; never returns. While the API server does not answer, the last state counts.
pub(crate) async fn follow(client: Client, namespace: &str, switch: watch::Sender<StopSwitch>) {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let mut stream = std::pin::pin!(watch_object(api, NAME).default_backoff());
    while let Some(found) = stream.next().await {
        let state = match found {
            Ok(found) => StopSwitch::of(found.as_ref().and_then(|map| map.data.as_ref())),
            Err(error) => {
                tracing::warn!(event = "stop_switch.unread", error = chain(&error), "the last state stays in effect");
                continue;
            }
        };
        switch.send_if_modified(|known| {
            let is_new = *known != state;
            if is_new {
                tracing::info!(event = "stop_switch.read", state = ?state);
                *known = state;
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_but_false_stops() {
        let of = |text: Option<&str>| {
            let data: BTreeMap<String, String> =
                text.map(|text| (KEY.to_owned(), text.to_owned())).into_iter().collect();
            StopSwitch::of(Some(&data)).reason().map(str::to_owned)
        };
        for off in [None, Some(""), Some(" \n"), Some("false")] {
            assert_eq!(of(off), None, "{off:?}");
        }
        for on in ["true", "alice: nodes fail", "False", "0"] {
            assert_eq!(of(Some(on)).as_deref(), Some(on));
        }
        assert_eq!(StopSwitch::of(None), StopSwitch::Off);
        assert!(StopSwitch::default().reason().is_some());
    }
}
