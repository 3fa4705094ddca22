//! The table of status codes, row by row.

use backoff::Backoff;

use super::*;
use crate::error::Refusal;

fn policy() -> Policy {
    Policy {
        timeout: Duration::from_secs(5),
        attempts: 8,
        backoff: Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(30) },
        deadline: Duration::from_mins(1),
    }
}

fn refused(status: u16, code: &str) -> Failure {
    Failure::Refused(Refusal { status, code: code.to_owned(), message: String::new(), retry_after: None })
}

fn after_attempt(attempts: u32, failure: &Failure, repeat: Repeat) -> Decision {
    let left = Duration::from_mins(1);
    decide(failure, Situation { policy: &policy(), repeat, attempts, renewed: false, left, chance: 1.0 })
}

#[test]
fn every_row_of_the_table_is_decided_as_documented() {
    let second = Decision::After(Duration::from_secs(1));
    let rows = [
        ((302, ""), Decision::Stop, Kind::Unusable),
        ((400, "InvalidParameter"), Decision::Stop, Kind::Invalid),
        ((400, "CannotParseRequest"), Decision::Stop, Kind::Invalid),
        ((400, "MissingParameter"), Decision::Stop, Kind::Invalid),
        ((400, "LimitExceeded"), Decision::Stop, Kind::Limit),
        ((400, "QuotaExceeded"), Decision::Stop, Kind::Limit),
        ((400, "RelatedResourceNotAuthorizedOrNotFound"), second, Kind::RelatedNotFoundOrForbidden),
        ((401, "NotAuthenticated"), Decision::RenewLogin, Kind::Login),
        ((402, "SignUpRequired"), Decision::Stop, Kind::Forbidden),
        ((403, "NotAllowed"), Decision::Stop, Kind::Forbidden),
        ((404, "NotAuthorizedOrNotFound"), Decision::Stop, Kind::NotFoundOrForbidden),
        ((405, "MethodNotAllowed"), Decision::Stop, Kind::Unusable),
        ((407, ""), Decision::Stop, Kind::Unusable),
        ((408, ""), second, Kind::Unavailable),
        ((409, "IncorrectState"), second, Kind::Busy),
        ((409, "LockConflict"), second, Kind::Busy),
        ((409, "Conflict"), Decision::Stop, Kind::Conflict),
        ((409, "InvalidatedRetryToken"), Decision::Stop, Kind::Conflict),
        ((409, "NotAuthorizedOrResourceAlreadyExists"), Decision::Stop, Kind::Conflict),
        ((412, "NoEtagMatch"), Decision::Stop, Kind::Changed),
        ((413, "RequestEntityTooLarge"), Decision::Stop, Kind::Invalid),
        ((429, "TooManyRequests"), second, Kind::Throttled),
        ((500, "InternalServerError"), second, Kind::Unavailable),
        ((501, "MethodNotImplemented"), Decision::Stop, Kind::Unusable),
        ((502, ""), second, Kind::Unavailable),
        ((503, "ServiceUnavailable"), second, Kind::Unavailable),
        ((504, ""), second, Kind::Unavailable),
    ];
    for ((status, code), decision, kind) in rows {
        let failure = refused(status, code);
        assert_eq!(failure.kind(), kind, "{status} {code}");
        assert_eq!(after_attempt(1, &failure, Repeat::Harmless), decision, "{status} {code}");
    }
}

#[test]
fn an_unsent_request_is_retried_even_without_a_token() {
    let lost = || Box::new(std::io::Error::other("lost")) as Box<dyn std::error::Error + Send + Sync>;
    let second = Decision::After(Duration::from_secs(1));
    let cases = [
        (Failure::NoConnection(lost()), second),
        (refused(429, "TooManyRequests"), second),
        (refused(409, "IncorrectState"), second),
        (Failure::Broken(lost()), Decision::Stop),
        (Failure::TimedOut(Duration::from_secs(5)), Decision::Stop),
        (refused(500, "InternalServerError"), Decision::Stop),
        (refused(503, "ServiceUnavailable"), Decision::Stop),
    ];
    for (failure, expected) in cases {
        assert_eq!(after_attempt(1, &failure, Repeat::Doubles), expected, "{failure:?}");
        assert_eq!(after_attempt(1, &failure, Repeat::Harmless), second, "{failure:?}");
    }
}

#[test]
fn attempts_end_by_number() {
    let busy = refused(409, "IncorrectState");
    assert!(matches!(after_attempt(2, &busy, Repeat::Harmless), Decision::After(_)));
    assert_eq!(after_attempt(3, &busy, Repeat::Harmless), Decision::Stop);
    let down = refused(503, "ServiceUnavailable");
    assert!(matches!(after_attempt(7, &down, Repeat::Harmless), Decision::After(_)));
    assert_eq!(after_attempt(8, &down, Repeat::Harmless), Decision::Stop);
}

#[test]
fn attempts_end_by_the_clock() {
    let (policy, failure) = (policy(), refused(503, ""));
    let at = |left| {
        let left = Duration::from_millis(left);
        decide(
            &failure,
            Situation { policy: &policy, repeat: Repeat::Harmless, attempts: 1, renewed: false, left, chance: 1.0 },
        )
    };
    assert_eq!(at(1000), Decision::Stop, "the backoff would end at the deadline");
    assert_eq!(at(1001), Decision::After(Duration::from_secs(1)));
}

#[test]
fn service_may_demand_a_longer_wait() {
    let failure = Failure::Refused(Refusal {
        status: 429,
        code: "TooManyRequests".to_owned(),
        message: String::new(),
        retry_after: Some(Duration::from_secs(7)),
    });
    assert_eq!(after_attempt(1, &failure, Repeat::Harmless), Decision::After(Duration::from_secs(7)));
}

#[test]
fn a_budget_without_room_is_not_waited_for_twice() {
    let failure = Failure::Budget(Duration::from_secs(40));
    assert_eq!((failure.kind(), failure.may_have_been_done()), (Kind::Throttled, false));
    assert_eq!(after_attempt(1, &failure, Repeat::Harmless), Decision::Stop);
}

#[test]
fn a_login_is_renewed_once() {
    let failure = refused(401, "NotAuthenticated");
    let policy = policy();
    let situation = Situation {
        policy: &policy,
        repeat: Repeat::Doubles,
        attempts: 1,
        renewed: true,
        left: Duration::from_mins(1),
        chance: 0.0,
    };
    assert_eq!(decide(&failure, situation), Decision::Stop);
    assert_eq!(decide(&failure, Situation { renewed: false, ..situation }), Decision::RenewLogin);
}
