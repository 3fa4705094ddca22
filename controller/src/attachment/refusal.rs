//! The meaning of a failed OCI call: whether it is an answer, and a reason and message that do not change while the cause
//! does not.

use api::AttachmentReason as Reason;
use oci::{AttachVnic, Error, Kind, Refusal};

use crate::attachment::report::attachment_status::StatusReason;
use crate::attachment::step::Action;

/// The part of a request id that we choose; the service appends twice as much.
const REQUEST_ID: usize = 32;

/// The sentence of each 404.
const NOT_FOUND: &str = "Authorization failed or requested resource not found";

/// Requests that create something get status 409 with this code where others get 404: a policy is missing, or the resource
/// is.
const NOT_AUTHORIZED: &str = "NotAuthorizedOrResourceAlreadyExists";

/// A failed read or step.
pub(crate) fn status_reason(error: &Error, action: Option<&Action>) -> StatusReason {
    let reason = match (error.kind(), action) {
        (Kind::Throttled, _) => Reason::Throttled,
        (Kind::Limit, _) if is_of_subnet(error) => Reason::SubnetFull,
        (Kind::Limit, _) => Reason::LimitReached,
        (Kind::Invalid | Kind::Conflict, Some(Action::CreateAddress(_, Some(_)))) => Reason::AddressTaken,
        (Kind::Conflict, _) if error.code() == Some(NOT_AUTHORIZED) => Reason::NotAuthorizedOrNotFound,
        (Kind::Invalid | Kind::Busy | Kind::Conflict, Some(Action::Attach(request, _)))
            if is_of_address(error, request) =>
        {
            Reason::AddressTaken
        }
        // The spec is valid; the token belonged to another one.
        (Kind::Invalid, Some(Action::Attach(..))) if is_of_token(error) => Reason::InstanceBusy,
        (Kind::Busy | Kind::Conflict | Kind::Changed, _) => Reason::InstanceBusy,
        (Kind::NotFoundOrForbidden | Kind::RelatedNotFoundOrForbidden, _) => Reason::NotAuthorizedOrNotFound,
        (Kind::Login, _) => Reason::NotAuthenticated,
        (Kind::Invalid, _) => Reason::InvalidSpec,
        (Kind::Forbidden, _) => Reason::Forbidden,
        (Kind::Unavailable | Kind::Unusable, _) => Reason::OciUnavailable,
    };
    let operation = error.operation().unwrap_or("the client");
    let message = match (error.refusal(), action) {
        // The next call may exceed our own budget, and the one after it get another 429: one message for both.
        _ if reason == Reason::Throttled => return StatusReason::new(reason, reason_alone(reason)),
        (Some(refusal), Some(Action::CreateAddress(_, Some(address)))) => {
            format!("{operation} of {address}: {}", words(refusal))
        }
        (Some(refusal), _) => format!("{operation}: {}", words(refusal)),
        // Errors of logins and connections contain numbers and times; the log has them.
        (None, _) => reason_alone(reason).to_owned(),
    };
    let request_id = error.request_id().map(|id| id.chars().take(REQUEST_ID).collect());
    StatusReason { reason, message, request_id }
}

/// The refused operation comes first, so the sentence common to all 404 answers is left out.
fn words(refusal: &Refusal) -> String {
    let Refusal { status, code, message, .. } = refusal;
    if message.trim_end_matches('.') == NOT_FOUND {
        format!("{status} {code}")
    } else {
        format!("{status} {code}: {message}")
    }
}

/// 404 is an answer: gone or not visible.
pub(super) fn visible<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found_or_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a refusal concerns one object: other requests to the instance may succeed.
pub(crate) const fn is_its_own(reason: Reason) -> bool {
    use Reason::{AddressTaken, Forbidden, InvalidSpec, LimitReached, NotAuthorizedOrNotFound, SubnetFull};
    matches!(reason, LimitReached | SubnetFull | AddressTaken | InvalidSpec | Forbidden | NotAuthorizedOrNotFound)
}

/// Whether a retry token is refused.
pub(crate) fn is_of_token(error: &Error) -> bool {
    error.refusal().is_some_and(Refusal::is_of_retry_token)
}

/// Whether OCI refuses an attach because of the address that it names. OCI has no code for this, only a text.
fn is_of_address(error: &Error, request: &AttachVnic) -> bool {
    let Some(address) = request.create_vnic_details.private_ip else { return false };
    let words = error.refusal().map(|refusal| refusal.message.to_lowercase()).unwrap_or_default();
    let is_named = ["private ip", "privateip", "ip address"].iter().any(|name| words.contains(name));
    words.contains(&address.to_string()) || is_named && !is_of_subnet(error)
}

/// Whether a bulk request is refused as such: single ones may succeed.
pub(crate) fn is_of_such_requests(error: &Error) -> bool {
    match error.kind() {
        Kind::Limit | Kind::Invalid | Kind::Forbidden | Kind::NotFoundOrForbidden => true,
        // The same as the last, as create requests report it.
        Kind::Conflict => error.code() == Some(NOT_AUTHORIZED),
        // An endpoint without such requests.
        _ => matches!(error.status(), Some(405 | 501)),
    }
}

/// Whether the limit is the subnet's own size. There is no code for it, only a text.
fn is_of_subnet(error: &Error) -> bool {
    let words = error.refusal().map(|refusal| refusal.message.to_lowercase()).unwrap_or_default();
    words.contains("subnet") && ["free", "available", "enough", "exhausted"].iter().any(|word| words.contains(word))
}

const fn reason_alone(reason: Reason) -> &'static str {
    match reason {
        Reason::NotAuthenticated => "OCI authentication failed; see the controller's log",
        Reason::Throttled => {
            "too many calls for OCI (429), or for the controller's own budget (not sent): \
             see oke_node_controller_oci_calls_total"
        }
        Reason::OciUnavailable => "the OCI API gives no usable answer; see the controller's log",
        _ => "see the controller's log",
    }
}

#[cfg(test)]
mod tests {
    use oci::Failure;
    use sandbox::FakeCloud;

    use std::time::Duration;

    use super::*;
    use crate::attachment::sample::instance;
    use crate::attachment::step::NewAddress;

    async fn failed(failure: Failure) -> Error {
        let mut error = FakeCloud::new().instance(&instance(1)).await.unwrap_err();
        let Error::Call { source, .. } = &mut error else { panic!("{error}") };
        **source = failure;
        error
    }

    fn refusal(status: u16, code: &str, message: &str) -> Failure {
        let (code, message) = (code.to_owned(), message.to_owned());
        Failure::Refused(Refusal { status, code, message, retry_after: None })
    }

    #[tokio::test]
    async fn our_own_budget_reads_like_a_429() {
        let budget = status_reason(&failed(Failure::Budget(Duration::from_secs(40))).await, None);
        assert_eq!(budget.reason, Reason::Throttled);
        assert!(budget.message.contains("budget") && !budget.message.contains("40"), "{}", budget.message);
        assert!(budget.message.len() <= api::condition::MESSAGE_MAX);
        let other = status_reason(&failed(refusal(429, "TooManyRequests", "tenancy x")).await, None);
        assert_eq!(other, budget, "one after the other, they change nothing");
    }

    #[tokio::test]
    async fn a_foreign_answer_does_not_blame_the_spec() {
        let html = || Failure::Unreadable { beginning: "<html>".to_owned(), source: "no JSON".into() };
        let (vnic, token) = ("ocid1.vnic.oc1.iad.v".parse().unwrap(), oci::RetryToken::derive(&["a"]));
        let new =
            NewAddress { vnic, family: vcn::Family::Ipv4, block: None, tags: oci::FreeformTags::default(), token };
        let action = Action::CreateAddress(new, Some("10.0.0.9".parse().unwrap()));
        let mut reported = Vec::new();
        for failure in [html(), refusal(407, "", "<html>"), refusal(501, "MethodNotImplemented", "")] {
            let error = failed(failure).await;
            reported.extend([status_reason(&error, None).reason, status_reason(&error, Some(&action)).reason]);
        }
        assert_eq!(reported, [Reason::OciUnavailable; 6]);
        let forbidden = status_reason(&failed(refusal(403, "NotAuthorized", "not this field")).await, None);
        assert_eq!(
            (forbidden.reason, &*forbidden.message),
            (Reason::Forbidden, "GetInstance: 403 NotAuthorized: not this field")
        );
    }

    #[tokio::test]
    async fn only_the_common_404_sentence_is_left_out() {
        let sentence = "Authorization failed or requested resource not found.";
        let mut reported = Vec::new();
        for message in [sentence, "Authorization failed or requested resource not found in the moon"] {
            reported.push(status_reason(&failed(refusal(404, "NotAuthorizedOrNotFound", message)).await, None).message);
        }
        let whole = "GetInstance: 404 NotAuthorizedOrNotFound: Authorization failed or requested resource not found in the moon";
        assert_eq!(reported, ["GetInstance: 404 NotAuthorizedOrNotFound", whole]);
    }

    #[tokio::test]
    async fn a_full_subnet_is_not_a_tenancy_limit() {
        let mut reported = Vec::new();
        for (code, message) in [
            ("LimitExceeded", "subnet ocid1.subnet.oc1.iad.pods has no 1 free IPv4 addresses in a row"),
            ("LimitExceeded", "Not enough private IPs available in Subnet ocid1.subnet.oc1.iad.pods"),
            ("LimitExceeded", "the limit vnic-attachments of 2 has been reached"),
            ("LimitExceeded", "the limit private-ips-per-subnet of 2 has been reached"),
            ("InvalidParameter", "IPv6 is not available in the subnet"),
        ] {
            reported.push(status_reason(&failed(refusal(400, code, message)).await, None).reason);
        }
        use Reason::{InvalidSpec, LimitReached, SubnetFull};
        assert_eq!(reported, [SubnetFull, SubnetFull, LimitReached, LimitReached, InvalidSpec]);
    }
}
