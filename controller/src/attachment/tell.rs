//! Writes a status to an object that has room for it, or makes room. Holds no opinions on what is said.

use std::borrow::Cow;

use api::{VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use resident::logging::chain;

use super::objects::{ObjectError, Objects};
use super::status::{Told, status};
use super::verdict::Verdict;
use super::writers::finalizer_note;
use crate::metrics::Metrics;

/// Who writes.
#[derive(Debug)]
pub struct Teller<'a, O> {
    /// The objects.
    pub objects: &'a O,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// The Node that the instance is.
    pub node: Option<&'a str>,
    /// When.
    pub now: Time,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Written {
    /// The status, if it is another than before.
    pub new: Option<VnicAttachmentStatus>,
    /// Whether something could not be written, and is to be tried again.
    pub failed: bool,
}

impl<O: Objects> Teller<'_, O> {
    /// Says so in the object, unless it says so already. Where whole words have no room, the note of who wrote our finalizer
    /// goes first: a write more, once, and only there.
    pub async fn tell(
        &self,
        object: &VnicAttachment,
        before: Option<&VnicAttachmentStatus>,
        verdict: &Verdict,
    ) -> Written {
        let says = |object: &VnicAttachment| status(object, before, verdict, self.node, &self.now);
        let mut told = says(object);
        let mut failed = false;
        let mut object = Cow::Borrowed(object);
        if told.is_crowded && finalizer_note(&object).is_some() {
            match self.make_room(&object).await {
                Some(new) => {
                    told = says(&new);
                    object = Cow::Owned(new);
                }
                // Fewer words are better than none.
                None => failed = true,
            }
        }
        let Told { new: Some(status), .. } = told else { return Written { new: None, failed } };
        let written = self.objects.write_status(&object, &status).await;
        self.metrics.wrote("status", written.is_ok());
        match written {
            Ok(()) => Written { new: Some(status), failed },
            Err(error) => {
                untold(&object, &error);
                Written { new: None, failed: true }
            }
        }
    }

    async fn make_room(&self, object: &VnicAttachment) -> Option<VnicAttachment> {
        let written = self.objects.forget_writer(object).await;
        self.metrics.wrote("writer", written.is_ok());
        match written {
            Ok(found) => Some(found.unwrap_or_else(|| object.clone())),
            Err(error) => {
                untold(object, &error);
                None
            }
        }
    }
}

/// Where the object is another, or somebody else wrote it, the watch will tell.
fn untold(object: &VnicAttachment, error: &ObjectError) {
    if !error.is_conflict() {
        tracing::warn!(event = "status.not_written", object = object.name_any(), error = chain(error));
    }
}
