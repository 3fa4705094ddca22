//! The VnicAttachments of this instance: what its VNICs are for. They are watched only while a secondary VNIC is listed that no
//! NativePodNetwork names, and until the end of such a VNIC is reported: most nodes have none.
//!
//! ```text
//!   API server ──watch by spec.instanceId──▶ InstanceWatch ──▶ cached copy on disk
//!                                                 │                  │ (an agent that starts, no cluster)
//!                                                 └─▶ AttachmentSource ◀─┘
//! ```

mod watch;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::{Received, VnicAttachment};
use resident::api_server::in_cluster;
use resident::logging::chain;
use tokio::sync::Notify;
use vcn::{ATTACHMENTS_COPY_FILE, Ocid};

use crate::facts::node_facts::KnownAttachments;
use crate::settings::Settings;
use crate::sources::cached_copy::CachedCopy;
use crate::sources::instance_watch::{InstanceWatch, InstanceWatcher};

pub(crate) use watch::OwnAttachments;

/// Where they come from.
#[derive(Debug)]
pub(crate) enum AttachmentSource {
    /// The API server, watched.
    ApiServer(InstanceWatch<OwnAttachments>),
    /// The cached copy, for an agent outside a cluster.
    Cache(CachedCopy),
}

/// Whether VnicAttachments matter to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It has a VNIC that one may describe, or the end of one is not reported yet. The first answer is waited for as long as this.
    Some {
        within: Duration,
    },
    None,
}

impl AttachmentSource {
    /// For the agent, with the task that must run for it, which notifies `changed`.
    pub(crate) fn watched(
        settings: &Settings,
        changed: Arc<Notify>,
    ) -> (Self, Option<InstanceWatcher<OwnAttachments>>) {
        let copy = CachedCopy::new(&settings.data_dir, ATTACHMENTS_COPY_FILE);
        if !in_cluster() {
            return (Self::Cache(copy), None);
        }
        let (watch, watcher) = InstanceWatch::new(copy, changed);
        (Self::ApiServer(watch), Some(watcher))
    }

    /// Brings `known` up to date. Cheap: it is called every few seconds.
    pub(crate) async fn refresh(&self, instance: &Ocid, need: Need, known: &mut KnownAttachments) {
        match (self, need) {
            (Self::ApiServer(watch), Need::None) => {
                watch.stop();
                *known = KnownAttachments::default();
            }
            (Self::ApiServer(watch), Need::Some { within }) => *known = watch.current(instance, within).await,
            (Self::Cache(_), Need::None) => *known = KnownAttachments::default(),
            (Self::Cache(copy), Need::Some { .. }) => match read_copy(copy, instance) {
                Ok(Some((attachments, age))) => known.recall(attachments, age, None, Instant::now()),
                Ok(None) => *known = KnownAttachments::default(),
                Err(error) => known.fail(chain(&error)),
            },
        }
    }

    /// Keeps the cached copy up to date, if the source has one. After an error, the next call retries.
    pub(crate) fn store_copy(&mut self) -> Result<(), String> {
        match self {
            Self::ApiServer(watch) => watch.store_copy(),
            Self::Cache(_) => Ok(()),
        }
    }
}

/// The cached copy and its age, without those of another instance, whose disk this may have been.
fn read_copy(copy: &CachedCopy, instance: &Ocid) -> io::Result<Option<(Vec<VnicAttachment>, Duration)>> {
    let Some(answer) = copy.read::<Vec<Received<VnicAttachment>>>()? else { return Ok(None) };
    let age = answer.age(SystemTime::now());
    let readable = answer.value.into_iter().filter_map(|attachment| attachment.0.ok());
    let own = readable.filter(|attachment| attachment.spec.instance_id == *instance).collect();
    Ok(Some((own, age)))
}
