//! Events about a VnicProfile whose condition gets another important reason. Its status holds the last reported reason, so
//! that neither a reconcile nor a new leader repeats it.

use api::condition::find;
use api::{Condition, ConditionType, ProfileReason, Reason as _, VnicProfile, VnicProfileStatus};
use kube::Resource;

use crate::cluster::events::{EventContent, Level};

/// The Event about a written status, if the reason changed.
pub(crate) fn event(profile: &VnicProfile, status: &VnicProfileStatus) -> Option<EventContent> {
    let ready = ready(status)?;
    let before = profile.status.as_ref().and_then(self::ready);
    if before.is_some_and(|before| before.reason == ready.reason) {
        return None;
    }
    let reason = ProfileReason::from_word(&ready.reason)?;
    let (level, note) = match reason {
        ProfileReason::Ready => (Level::Normal, "all VNICs of every selected node are ready".to_owned()),
        ProfileReason::Replacing => (Level::Normal, ready.message.clone()),
        ProfileReason::Failing
        | ProfileReason::Conflict
        | ProfileReason::InvalidSpec
        | ProfileReason::InvalidSelector => (Level::Warning, ready.message.clone()),
        // A user's own action, or a passing state.
        ProfileReason::NoNodes | ProfileReason::Progressing => return None,
        ProfileReason::Paused | ProfileReason::Deleting => return None,
    };
    Some(EventContent { regarding: profile.object_ref(&()), level, reason: reason.as_str(), action: "Stamp", note })
}

fn ready(status: &VnicProfileStatus) -> Option<&Condition> {
    find(&status.conditions, ConditionType::Ready)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn status(reason: ProfileReason, message: &str) -> VnicProfileStatus {
        let now = Time(Timestamp::from_second(1_000_000).unwrap());
        let conditions = vec![Condition::new(ConditionType::Ready, reason, message, now)];
        VnicProfileStatus { conditions, ..VnicProfileStatus::default() }
    }

    fn profile(uid: &str, status: Option<VnicProfileStatus>) -> VnicProfile {
        let spec = serde_json::json!({ "nodeSelector": {}, "allNodes": true, "attachments": [] });
        let mut profile = VnicProfile::new("pool", serde_json::from_value(spec).unwrap());
        profile.metadata.uid = Some(uid.to_owned());
        profile.status = status;
        profile
    }

    /// The Event for a change from one reason to another.
    fn reported(before: Option<ProfileReason>, after: ProfileReason) -> Option<(Level, &'static str)> {
        let profile = profile("1", before.map(|reason| status(reason, "before")));
        let event = event(&profile, &status(after, "node-1: why"))?;
        assert_eq!((event.regarding.name.as_deref(), event.regarding.uid.as_deref()), (Some("pool"), Some("1")));
        assert_eq!((event.action, event.note.is_empty()), ("Stamp", false));
        Some((event.level, event.reason))
    }

    #[test]
    fn only_important_changes_become_events() {
        use ProfileReason as R;
        assert_eq!(reported(None, R::Ready), Some((Level::Normal, "Ready")));
        assert_eq!(reported(Some(R::Ready), R::Ready), None);
        assert_eq!(reported(Some(R::Ready), R::Failing), Some((Level::Warning, "Failing")));
        assert_eq!(reported(Some(R::Progressing), R::Conflict), Some((Level::Warning, "Conflict")));
        assert_eq!(reported(Some(R::Ready), R::Paused), None);
    }
}
