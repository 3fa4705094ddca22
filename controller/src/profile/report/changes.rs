//! Events about a VnicProfile whose condition gets another important reason. Its status holds the last reported reason, so
//! that neither a reconcile nor a new leader repeats it.

use std::collections::BTreeMap;

use api::condition::find;
use api::{Condition, ConditionType, ProfileReason, Reason as _, VnicProfile, VnicProfileStatus};
use kube::{Resource, ResourceExt};

use crate::cluster::events::{EventContent, Level};

/// The last written reasons, by profile and uid: the watch reports a write only later.
#[derive(Debug, Default)]
pub struct Changes(BTreeMap<(String, Option<String>), String>);

impl Changes {
    /// Records a written status. Returns the Event, if the reason changed.
    pub fn note(&mut self, profile: &VnicProfile, status: &VnicProfileStatus) -> Option<EventContent> {
        let ready = ready(status)?;
        let was = profile.status.as_ref().and_then(self::ready).map(|before| before.reason.clone());
        let last = self.0.insert((profile.name_any(), profile.uid()), ready.reason.clone());
        if last.or(was).as_ref() == Some(&ready.reason) {
            return None;
        }
        let reason = ProfileReason::from_word(&ready.reason)?;
        let (level, note) = match reason {
            ProfileReason::Ready => (Level::Normal, "all VNICs of every selected node are ready".to_owned()),
            ProfileReason::Replacing => (Level::Normal, ready.message.clone()),
            ProfileReason::Failing | ProfileReason::Conflict | ProfileReason::InvalidSelector => {
                (Level::Warning, ready.message.clone())
            }
            // A user's own action, or a passing state.
            ProfileReason::NoNodes | ProfileReason::Progressing | ProfileReason::Paused => return None,
        };
        Some(EventContent {
            regarding: profile.object_ref(&()),
            level,
            reason: reason.as_str(),
            action: "TemplateObject",
            note,
        })
    }

    /// Drops profiles that no longer exist.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _), _| is_there(name));
    }
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
    fn told(
        changes: &mut Changes,
        before: Option<ProfileReason>,
        after: ProfileReason,
    ) -> Option<(Level, &'static str)> {
        let profile = profile("1", before.map(|reason| status(reason, "before")));
        let news = changes.note(&profile, &status(after, "node-1: why"))?;
        assert_eq!((news.regarding.name.as_deref(), news.regarding.uid.as_deref()), (Some("pool"), Some("1")));
        assert!(!news.note.is_empty());
        Some((news.level, news.reason))
    }

    #[test]
    fn only_important_changes_become_events() {
        use ProfileReason as R;
        for before in ProfileReason::ALL.iter().copied().map(Some).chain([None]) {
            for after in ProfileReason::ALL.iter().copied() {
                let expected = match after {
                    _ if before == Some(after) => None,
                    R::Ready | R::Replacing => Some((Level::Normal, after.as_str())),
                    R::Failing | R::Conflict | R::InvalidSelector => Some((Level::Warning, after.as_str())),
                    R::NoNodes | R::Progressing | R::Paused => None,
                };
                assert_eq!(told(&mut Changes::default(), before, after), expected, "{before:?} to {after:?}");
            }
        }
    }

    #[test]
    fn a_change_is_reported_once_although_the_watch_is_late() {
        use ProfileReason as R;
        let mut changes = Changes::default();
        assert!(told(&mut changes, Some(R::Progressing), R::Failing).is_some());
        assert!(told(&mut changes, Some(R::Progressing), R::Failing).is_none(), "other nodes fail, too");
        assert!(told(&mut changes, Some(R::Progressing), R::Ready).is_some());
        assert!(told(&mut changes, Some(R::Failing), R::Ready).is_none());
        assert!(told(&mut changes, Some(R::Ready), R::Progressing).is_none());
        assert!(told(&mut changes, Some(R::Progressing), R::Ready).is_some());
        let other = profile("2", None);
        assert!(changes.note(&other, &status(R::Ready, "")).is_some(), "another profile of the name");
        changes.keep(|name| name != "pool");
        assert!(changes.0.is_empty());
    }
}
