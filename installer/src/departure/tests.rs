//! Every answer, and what it means.

use super::*;

fn present(deleting: bool, selects_node: Selects) -> OwnDaemonSet {
    OwnDaemonSet::Present { deleting, selects_node }
}

#[test]
fn a_daemonset_that_wants_us_means_that_we_return() {
    for (selects, reason) in [(Selects::Yes, Reason::DaemonSetPresent), (Selects::Unknown, Reason::NodeUnknown)] {
        assert_eq!(departure(&present(false, selects), true), Departure::Returning(reason));
    }
}

#[test]
fn a_daemonset_that_is_gone_or_going_or_no_longer_for_this_node_means_that_we_leave() {
    for (answer, reason) in [
        (OwnDaemonSet::NotFound, Reason::DaemonSetGone),
        (present(true, Selects::Yes), Reason::DaemonSetDeleting),
        (present(true, Selects::No), Reason::DaemonSetDeleting),
        (present(false, Selects::No), Reason::NodeNotSelected),
        (OwnDaemonSet::Unauthorized, Reason::Unauthorized),
    ] {
        assert_eq!(departure(&answer, true), Departure::Leaving(reason));
    }
}

#[test]
fn in_doubt_everything_stays() {
    for token_worked in [false, true] {
        for answer in [OwnDaemonSet::Forbidden, OwnDaemonSet::Unreachable] {
            assert_eq!(departure(&answer, token_worked), Departure::Returning(Reason::Untold));
        }
    }
    assert_eq!(departure(&OwnDaemonSet::Unauthorized, false), Departure::Returning(Reason::Untold));
}
