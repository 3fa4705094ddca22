//! Waits until the API server applies what was written: rights take effect a moment later, and its caches serve older objects.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use kube_harness::Identity;
use serde_json::json;

use crate::Cluster;

/// What the agent may request: verb, group, resource, name and namespace.
pub(crate) type Right<'r> = (&'r str, &'r str, &'r str, &'r str, &'r str);

pub(crate) const LIST_NPNS: Right<'_> = ("list", "oci.oraclecloud.com", "nativepodnetworks", "", "");
pub(crate) const WATCH_NPNS: Right<'_> = ("watch", "oci.oraclecloud.com", "nativepodnetworks", "", "");
pub(crate) const LIST_OKES: Right<'_> = ("list", "apps", "daemonsets", "vcn-native-ip-cni", "kube-system");
pub(crate) const WATCH_OKES: Right<'_> = ("watch", "apps", "daemonsets", "vcn-native-ip-cni", "kube-system");
pub(crate) const LIST_VNICS: Right<'_> = ("list", "oke.oraclecloud.com", "vnicattachments", "", "");
pub(crate) const LIST_OWN: Right<'_> = ("list", "apps", "daemonsets", "", "oke-node-manager");
pub(crate) const CREATE_EVENTS: Right<'_> = ("create", "events.k8s.io", "events", "", "default");

impl Cluster {
    /// Waits until the agent's account has a right, or has it no more.
    pub(crate) fn wait_may(&self, right: Right<'_>, may: bool) {
        let (verb, group, resource, name, namespace) = right;
        let token = std::fs::read_to_string(self.node.path("secrets/token")).unwrap();
        let attributes =
            json!({ "verb": verb, "group": group, "resource": resource, "name": name, "namespace": namespace });
        let review = json!({ "spec": { "resourceAttributes": attributes } });
        let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
        self.wait_until(&format!("whether it may {attributes} is {may}"), async |server| {
            let reviews = Api::all(server.client(&Identity::of_token(token.as_str())).unwrap());
            let answer: SelfSubjectAccessReview = reviews.create(&PostParams::default(), &review).await.unwrap();
            answer.status.unwrap().allowed == may
        });
    }

    /// Waits until the API server answers so for an object that is requested as it remembers it.
    pub(crate) fn wait_remembered(&self, path: &str, is_there: bool) {
        let path = format!("{path}?resourceVersion=0");
        self.wait_until(&format!("whether {path} is there is {is_there}"), async |server| {
            let request = hyper::Request::get(&path).body(Vec::new()).unwrap();
            server.client(server.admin()).unwrap().request_text(request).await.is_ok() == is_there
        });
    }

    fn wait_until(&self, what: &str, true_now: impl AsyncFn(&kube_harness::ApiServer) -> bool + Send + Sync) {
        self.do_(async |server| kube_harness::wait_until(what, async || true_now(server).await).await);
    }
}
