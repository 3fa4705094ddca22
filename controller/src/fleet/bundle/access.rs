//! Who gets a bundle. Every process of the leader's host can reach the view, so a bundle needs a token. It is a token of a
//! ServiceAccount without rights, for an audience that the API server does not have. A program that sees the token can read a
//! bundle for ten minutes, and do nothing else. RBAC decides who may create it.

use std::time::Duration;

use api::bundle::{BUNDLE_ACCOUNT, BUNDLE_AUDIENCE};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use resident::logging::chain;
use resident::server::Answer;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// The longest token that is checked, in bytes; one of a ServiceAccount has about 1,000.
const TOKEN_MAX: usize = 8 * 1024;
const REVIEW: Duration = Duration::from_secs(10);
/// After a refusal: processes of this host must not use up the API server's time.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// The claim that names the token in the API server's audit log.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

pub(super) struct Access {
    reviews: Api<TokenReview>,
    /// The user that a token must have.
    user: String,
    /// One check at a time.
    one: Mutex<()>,
}

impl Access {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let user = format!("system:serviceaccount:{namespace}:{BUNDLE_ACCOUNT}");
        Self { reviews: Api::all(client), user, one: Mutex::default() }
    }

    /// Checks the token of a request.
    pub(super) async fn check(&self, token: Option<&str>) -> Result<(), Answer> {
        let refusal = |status: u16, why: &str| {
            Answer::text(
                status,
                &format!(
                    "{why}: a bundle needs a token of {} for the audience {BUNDLE_AUDIENCE}, which holders of the Role \
                     {BUNDLE_ACCOUNT} may create\n",
                    self.user
                ),
            )
        };
        let Some(token) = token.filter(|token| !token.is_empty() && token.len() <= TOKEN_MAX) else {
            return Err(refusal(401, "no token"));
        };
        let Ok(_one) = timeout(REVIEW, self.one.lock()).await else {
            return Err(Answer::text(429, "other tokens are being checked; retry\n"));
        };
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![BUNDLE_AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = timeout(REVIEW, self.reviews.create(&PostParams::default(), &review)).await;
        let failure = match reviewed {
            Ok(Ok(review)) => match self.judge(&review.status.unwrap_or_default()) {
                Ok(()) => return Ok(()),
                Err((status, why)) => refusal(status, why),
            },
            Ok(Err(error)) => unchecked(&chain(&error)),
            Err(_) => unchecked("the API server does not answer"),
        };
        sleep(REFUSAL_PAUSE).await;
        Err(failure)
    }

    fn judge(&self, status: &TokenReviewStatus) -> Result<(), (u16, &'static str)> {
        let user = status.user.clone().unwrap_or_default();
        let has_audience = status.audiences.iter().flatten().any(|audience| audience == BUNDLE_AUDIENCE);
        let name = user.username.unwrap_or_default();
        let credential = user.extra.and_then(|extra| extra.get(CREDENTIAL)?.first().cloned());
        match (status.authenticated == Some(true) && has_audience, name == self.user) {
            (false, _) => Err((401, "the token is not valid for bundles")),
            (true, false) => {
                tracing::warn!(event = "bundle.refused", user = name, credential, "the token is of another account");
                Err((403, "the token is of another account"))
            }
            (true, true) => {
                tracing::info!(
                    event = "bundle.requested",
                    credential,
                    "the API server's audit log names the creator of this token"
                );
                Ok(())
            }
        }
    }
}

fn unchecked(error: &str) -> Answer {
    tracing::warn!(event = "bundle.unchecked", error, "no bundle is sent");
    Answer::text(503, &format!("the token cannot be checked: {error}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn only_the_accounts_token_for_the_audience_is_accepted() {
        let client =
            Client::new(tower::service_fn(|_| async { Err::<hyper::Response<String>, _>("unexpected request") }), "a");
        let access = Access::new(client, "oke-node-manager");
        let judge =
            |status: Value| access.judge(&serde_json::from_value(status).unwrap()).map_err(|(status, _)| status);
        let user = |name: &str| json!({ "username": format!("system:serviceaccount:{name}") });
        let ours = user("oke-node-manager:oke-node-bundle");
        let audiences = [BUNDLE_AUDIENCE];
        let accepted = json!({ "authenticated": true, "user": ours, "audiences": audiences });
        assert_eq!(judge(accepted), Ok(()));
        for (status, expected) in [
            (json!({}), 401),
            (json!({ "authenticated": false, "user": ours, "audiences": audiences }), 401),
            // An authenticator that knows no audiences returns none.
            (json!({ "authenticated": true, "user": ours }), 401),
            (json!({ "authenticated": true, "user": ours, "audiences": ["https://kubernetes.default.svc"] }), 401),
            (json!({ "authenticated": true, "user": user("a:oke-node-bundle"), "audiences": audiences }), 403),
            (json!({ "authenticated": true, "user": user("oke-node-manager:default"), "audiences": audiences }), 403),
            (json!({ "authenticated": true, "audiences": audiences }), 403),
        ] {
            assert_eq!(judge(status.clone()), Err(expected), "{status}");
        }
        let long = "x".repeat(TOKEN_MAX + 1);
        for token in [None, Some(""), Some(long.as_str())] {
            assert_eq!(access.check(token).await.map_err(|answer| answer.status), Err(401));
        }
    }
}
