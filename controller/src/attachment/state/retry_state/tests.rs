//! The backoff of pending changes.

use super::*;

#[test]
fn pending_change_backs_off_until_applied_or_changed() {
    let pauses = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(5) };
    let (now, vnic): (_, Ocid) = (Instant::now(), "ocid1.vnic.oc1.iad.v".parse().unwrap());
    let mut state = RetryState { generation: Some(1), ..RetryState::default() };
    for (seconds, number) in [(1, 1), (2, 2), (4, 3), (5, 4)] {
        state.took(&vnic, now);
        let pause = Pause { left: Duration::from_secs(seconds), number };
        assert_eq!(state.pending(&vnic, now, &pauses), Some(pause));
    }
    assert_eq!(state.pending(&vnic, now + Duration::from_secs(5), &pauses), None);
    state.generation = Some(2);
    assert_eq!(state.pending(&vnic, now, &pauses), None, "the spec changed");
    state.took(&vnic, now);
    assert_eq!(state.pending(&vnic, now, &pauses), Some(Pause { left: Duration::from_secs(1), number: 1 }));
    state.is_as_asked(Some(2), Some(&vnic));
    assert_eq!(state.pending(&vnic, now, &pauses), None);
}
