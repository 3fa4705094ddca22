//! Events about a VnicProfile when the reason of its condition becomes another one that a person cares for. What was told stands in
//! its status, so that neither a look nor a controller that begins tells it again.

use std::collections::BTreeMap;

use api::condition::find;
use api::{Condition, ConditionType, ProfileReason, Reason as _, VnicProfile, VnicProfileStatus};
use kube::{Resource, ResourceExt};

use crate::cluster::events::{EventContent, Level};

/// The reasons that were written last, by profile and uid: the watch tells of a write only later.
#[derive(Debug, Default)]
pub struct Changes(BTreeMap<(String, Option<String>), String>);

impl Changes {
    /// Notes what was written of a profile as it was read. What is to be told of it, if it is another reason than before.
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
            // What somebody just did, or what passes.
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

    /// Forgets profiles that are not there.
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

    /// What is told when a profile that has one reason gets another.
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
    fn every_change_that_a_person_cares_for_is_told_and_no_other_writing() {
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
    fn a_change_is_told_once_although_the_watch_tells_of_the_writing_later() {
        use ProfileReason as R;
        let mut changes = Changes::default();
        assert!(told(&mut changes, Some(R::Progressing), R::Failing).is_some());
        assert!(told(&mut changes, Some(R::Progressing), R::Failing).is_none(), "other nodes fail, too");
        assert!(told(&mut changes, Some(R::Progressing), R::Ready).is_some());
        assert!(told(&mut changes, Some(R::Failing), R::Ready).is_none());
        assert!(told(&mut changes, Some(R::Ready), R::Progressing).is_none());
        assert!(told(&mut changes, Some(R::Progressing), R::Ready).is_some());
        let other = profile("2", None);
        assert!(changes.note(&other, &status(R::Ready, "")).is_some(), "another of its name");
        changes.keep(|name| name != "pool");
        assert!(changes.0.is_empty());
    }
}
