//! Failures for people: the chain of causes, and what to do about a refusal of the API server.

use std::error::Error;

use command::ListError;
use command::chain;
use kube::client::{AuthError, UpgradeConnectionError};

/// The most characters of what a plugin for credentials prints.
const PRINTED: usize = 300;

/// An error with its causes, and the next step after a refusal.
pub(crate) fn words(error: &anyhow::Error) -> String {
    let causes: Vec<&(dyn Error + 'static)> = error.chain().collect();
    if let Some(failed) = causes.iter().find_map(|cause| plugin_failure(*cause)) {
        return failed;
    }
    let text = chain(error.as_ref());
    match causes.iter().find_map(|cause| refusal(*cause)) {
        Some(401) => format!(
            "{text}. The API server does not accept your credentials: log in again. This command needs the ClusterRole and the Role \
             oke-node-viewer"
        ),
        Some(403) => format!(
            "{text}. Your user needs the ClusterRole and the Role oke-node-viewer (nettest: oke-network-tester): kubectl create \
             clusterrolebinding NAME --clusterrole=oke-node-viewer --user=USER; kubectl -n oke-node-manager create rolebinding NAME \
             --role=oke-node-viewer --user=USER"
        ),
        _ => text,
    }
}

/// The status with which the API server refused a request.
fn refusal(cause: &(dyn Error + 'static)) -> Option<u16> {
    let of_kube = |error: &kube::Error| match error {
        kube::Error::Api(status) => Some(status.code),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => Some(status.as_u16()),
        _ => None,
    };
    let code = match (cause.downcast_ref::<kube::Error>(), cause.downcast_ref::<ListError>()) {
        (Some(error), _) | (None, Some(ListError::Api(error))) => of_kube(error),
        _ => None,
    };
    code.filter(|code| matches!(code, 401 | 403))
}

/// A plugin for credentials that ran and failed: its own words.
fn plugin_failure(cause: &(dyn Error + 'static)) -> Option<String> {
    let error = match cause.downcast_ref::<kube::Error>() {
        Some(kube::Error::Auth(error)) => error,
        _ => cause.downcast_ref::<AuthError>()?,
    };
    let AuthError::AuthExecRun { cmd, out } = error else { return None };
    let printed = String::from_utf8_lossy(&out.stderr);
    let printed = printed.trim();
    let shown: String = printed.chars().skip(printed.chars().count().saturating_sub(PRINTED)).collect();
    Some(format!("the program {cmd}, from which the kubeconfig gets credentials, failed ({}): {shown}", out.status))
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use kube::core::Status;

    use super::*;

    #[test]
    fn refusals_name_the_role() {
        let refused = |code: u16| {
            let status = Status { code, message: "nodes is forbidden".to_owned(), ..Status::default() };
            kube::Error::Api(Box::new(status))
        };
        let of = |error: kube::Error| words(&Err::<(), _>(ListError::Api(error)).context("listing Nodes").unwrap_err());
        for code in [401, 403] {
            let text = words(&Err::<(), _>(refused(code)).context("reading Node a").unwrap_err());
            assert!(text.contains("oke-node-viewer") && text.starts_with("reading Node a: "), "{text}");
            assert!(of(refused(code)).contains("oke-node-viewer"));
        }
        assert!(!of(refused(500)).contains("oke-node-viewer"));
        let upgrade = UpgradeConnectionError::ProtocolSwitch(hyper::StatusCode::FORBIDDEN);
        assert!(of(kube::Error::UpgradeConnection(upgrade)).contains("oke-node-viewer"));
    }
}
