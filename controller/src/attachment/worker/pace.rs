//! How often what is in order is looked at, and how often what is not. A look costs some calls, and the cloud takes so many a
//! second: with many instances the looks are stretched, and lists of whole compartments (`sweep`) tell in between which are
//! worth one. What fails has its part of the requests, however many fail: the others must not wait for it.

use std::time::Duration;

use api::VnicAttachment;

use crate::attachment::report::event_diff::{is_settled, is_tried};
use crate::attachment::report::status::node_name;
use crate::profile::select::from_template::profile_of;

/// Of a look: the instance, its list, and what else comes once.
const CALLS_PER_INSTANCE: f64 = 3.0;
/// Each VNIC of ours and its addresses.
const CALLS_PER_VNIC: f64 = 2.0;
/// What regular looks may take of the requests: the rest is for those who wait.
const SHARE: f64 = 0.5;
/// What looks at what was tried in vain may take: with the regular ones, something is left.
const SHARE_OF_RETRIES: f64 = 1.0 / 3.0;

/// How much there is to look after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Instances with objects.
    pub instances: usize,
    /// Objects.
    pub objects: usize,
}

/// The pause between two looks at an instance that is in order: `resync`, or longer where half of `rate` requests per second
/// would not suffice.
#[must_use]
pub fn between_looks(resync: Duration, load: Load, rate: f64) -> Duration {
    // Nobody has 2^53 instances.
    let calls = CALLS_PER_INSTANCE * load.instances as f64 + CALLS_PER_VNIC * load.objects as f64;
    resync.max(Duration::from_secs_f64(calls / (rate * SHARE).max(0.01)))
}

/// The pause until an instance is looked at again while something is on its way: `poll`, or longer where so many wait that
/// their polls would take half of `rate` requests per second. The other half attaches.
#[must_use]
pub fn between_polls(poll: Duration, waiting: usize, rate: f64) -> Duration {
    let calls = CALLS_PER_INSTANCE * waiting as f64;
    poll.max(Duration::from_secs_f64(calls / (rate * SHARE).max(0.01)))
}

/// How far two looks at instances are apart of which something has failed for a while, or has to be mended by others: all of them
/// together take a third of `rate` requests per second at most.
#[must_use]
pub fn between_retries(rate: f64) -> Duration {
    Duration::from_secs_f64(CALLS_PER_INSTANCE / (rate * SHARE_OF_RETRIES).max(0.01))
}

/// Whether an instance need not be looked at at once: all its objects are as asked, and name the Node that it is now.
#[must_use]
pub fn can_wait<'a>(objects: impl IntoIterator<Item = &'a VnicAttachment>, node: Option<&str>) -> bool {
    objects.into_iter().all(|object| {
        let status = object.status.as_ref();
        let named = status.and_then(|status| status.node_name.as_deref());
        is_settled(object, status) && (node.and_then(node_name).is_none() || named == node)
    })
}

/// Whether nothing new is asked of an instance: some of its objects were tried as they are asked for now, the others are in
/// order.
#[must_use]
pub fn was_tried<'a>(objects: impl IntoIterator<Item = &'a VnicAttachment>) -> bool {
    let mut tried = false;
    objects.into_iter().all(|object| {
        let status = object.status.as_ref();
        let is_tried = is_tried(object, status);
        tried |= is_tried;
        is_tried || is_settled(object, status)
    }) && tried
}

/// Whether what is new of an instance is part of a rollout: all of it was made of profiles, and nobody named one for this Node.
#[must_use]
pub fn is_of_rollout<'a>(objects: impl IntoIterator<Item = &'a VnicAttachment>, is_annotated: bool) -> bool {
    let new = |object: &VnicAttachment| {
        let status = object.status.as_ref();
        !is_settled(object, status) && !is_tried(object, status)
    };
    let mut of_profiles = objects.into_iter().filter(|object| new(object)).map(|object| profile_of(object).is_some());
    // Where nothing is new of them, the Node is.
    !is_annotated && of_profiles.next() == Some(true) && of_profiles.all(|is| is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_stretched_where_there_are_too_many() {
        let resync = Duration::from_mins(5);
        assert_eq!(between_looks(resync, Load { instances: 100, objects: 200 }, 20.0), resync);
        let many = Load { instances: 10_000, objects: 20_000 };
        assert_eq!(between_looks(resync, many, 20.0), Duration::from_secs(7000));
        let poll = Duration::from_secs(3);
        assert_eq!([1, 10, 200].map(|waiting| between_polls(poll, waiting, 20.0).as_secs()), [3, 3, 60]);
        assert_eq!([0.5, 20.0].map(|rate| between_retries(rate).as_millis()), [18_000, 450]);
    }
}
