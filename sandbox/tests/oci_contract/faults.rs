//! Our client under faults: lost, refused, late and revoked answers; and what the fabric makes of what the client created.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fixture::{at, configure, reaches, two_nodes, wait_for, wait_for_drop};
use backoff::{Backoff, Policy};
use oci::{
    ApiKey, AttachVnic, AttachmentState, Attempt, Budget, CreateAddress, CreateVnic, Endpoints, InstancePrincipal,
    Kind, Login, Observer, Oci, Options, Rates, RetryToken, Trust, VnicAttachment,
};
use sandbox::{ApiFault, ApiFaultKind, DropReason, OciApi, OciSettings, Operation, Vcn};
use tempfile::TempDir;
use vcn::{Family, Ocid, TableId};

struct Setup {
    vcn: Arc<Vcn>,
    api: OciApi,
    oci: Oci,
    seen: Arc<Attempts>,
    folder: TempDir,
}

#[derive(Default)]
struct Attempts(Mutex<Vec<Attempt>>);

impl Observer for Attempts {
    fn attempted(&self, attempt: Attempt) {
        self.0.lock().unwrap().push(attempt);
    }
}

fn quick() -> Policy {
    Policy {
        timeout: Duration::from_secs(60),
        attempts: 8,
        backoff: Backoff { first: Duration::from_millis(5), cap: Duration::from_millis(50) },
        deadline: Duration::from_secs(240),
    }
}

fn swift() -> Budget {
    Budget::new(Rates { most: 1000.0, least: 50.0, burst: 100.0 })
}

impl Setup {
    fn new(vcn: Vcn, settings: OciSettings, policy: Policy, budget: Budget) -> Self {
        let vcn = Arc::new(vcn);
        let api = OciApi::start(Arc::clone(&vcn), settings).unwrap();
        let folder = TempDir::new().unwrap();
        let config = api.write_user(folder.path()).unwrap();
        let login = Login::api_key(ApiKey::from_config_file(&config, "DEFAULT").unwrap());
        let seen = Arc::new(Attempts::default());
        let options =
            Options { policy, budget, observer: Some(Arc::clone(&seen) as Arc<dyn Observer>), ..Options::default() };
        let oci = Oci::new(&endpoints(&api.url()), login, options).unwrap();
        Self { vcn, api, oci, seen, folder }
    }

    fn plain() -> Self {
        Self::new(two_nodes(), OciSettings::default(), quick(), swift())
    }

    fn request(&self, node: &str) -> AttachVnic {
        let subnet_id = Some(self.vcn.subnet("pods").unwrap().id.clone());
        let create_vnic_details = CreateVnic { subnet_id, ..CreateVnic::default() };
        let instance_id = self.vcn.node(node).unwrap().id().clone();
        AttachVnic { instance_id, create_vnic_details, display_name: None, nic_index: None }
    }

    async fn attached(&self, id: &Ocid) -> VnicAttachment {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let read = self.oci.vnic_attachment(id).await.unwrap().value;
            if read.lifecycle_state == AttachmentState::Attached {
                return read;
            }
            assert!(Instant::now() < deadline, "{read:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// On a node, with a client that logs in as the instance.
    fn as_instance<T: Send>(&self, work: impl AsyncFnOnce(&Oci, &Ocid) -> T + Send) -> T {
        let node = self.vcn.node("node-a").unwrap();
        let (url, vnic) = (self.api.url_in_nodes(), node.vnics()[0].id.clone());
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let metadata = oci::METADATA_URL.parse().unwrap();
                let instance = InstancePrincipal::new(&metadata, &Trust::Public).unwrap();
                let instance = instance.with_federation(url.parse().unwrap());
                let options = Options { policy: quick(), budget: swift(), ..Options::default() };
                work(&Oci::new(&endpoints(&url), Login::instance_principal(instance), options).unwrap(), &vnic).await
            })
        };
        node.run(run).unwrap()
    }
}

fn endpoints(url: &str) -> Endpoints {
    Endpoints { core: url.parse().unwrap(), auth: url.parse().unwrap() }
}

fn token(text: &str) -> RetryToken {
    RetryToken::derive(&[text])
}

#[tokio::test]
async fn lost_answers_double_nothing() {
    let setup = Setup::plain();
    for kind in [ApiFaultKind::LoseAnswer, ApiFaultKind::FailAfterwards, ApiFaultKind::LoseRequest] {
        setup.api.inject(ApiFault::new(kind).of(Operation::AttachVnic).times(2));
    }
    let made = setup.oci.attach_vnic(&setup.request("node-a"), &token("one")).await.unwrap().value;
    setup.attached(&made.id).await;
    let on_a = setup.api.attachments().into_iter().filter(|attachment| attachment.node == "node-a").count();
    assert_eq!(on_a, 3, "the primary VNIC, the one for pods, and one more");
    let attempts = setup.seen.0.lock().unwrap().iter().filter(|attempt| attempt.operation == "AttachVnic").count();
    assert_eq!(attempts, 7);
}

#[tokio::test]
async fn a_refused_call_has_its_subject_and_number() {
    let setup = Setup::plain();
    let unknown: Ocid = "ocid1.vnic.oc1.iad.unknown".parse().unwrap();
    let error = setup.oci.vnic(&unknown).await.unwrap_err();
    assert!(error.is_not_found_or_forbidden());
    let number = error.request_id().unwrap();
    assert!(number.ends_with("/SANDBOX"), "the service's own: {number}");
    assert_eq!(error.to_string(), format!("GetVnic {unknown} (attempt 1, opc-request-id {number})"));
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "status 404 NotAuthorizedOrNotFound: Authorization failed or requested resource not found.");
}

#[tokio::test]
async fn a_deadline_is_kept() {
    let policy = Policy { deadline: Duration::from_millis(400), timeout: Duration::from_millis(150), ..quick() };
    let setup = Setup::new(two_nodes(), OciSettings::default(), policy, swift());
    setup.api.inject(ApiFault::new(ApiFaultKind::Delay(Duration::from_secs(30))));
    let started = Instant::now();
    let error = setup.oci.attach_vnic(&setup.request("node-a"), &token("a")).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
    assert!(!error.request_id().unwrap().is_empty(), "the client's, as there was no answer");
}

#[test]
fn a_revoked_session_is_renewed_once_by_itself() {
    let setup = Setup::plain();
    let api = &setup.api;
    let statuses = setup.as_instance(async |oci, vnic| {
        oci.vnic(vnic).await.unwrap();
        api.revoke_tokens();
        oci.vnic(vnic).await.unwrap();
        oci.vnic(vnic).await.unwrap();
        [200, 401].map(|status| api.answered(Operation::GetVnic, status))
    });
    assert_eq!(statuses, [3, 1]);
    assert_eq!(api.answered(Operation::Federate, 200), 2);
}

#[test]
fn an_instance_that_cannot_log_in_reports_why() {
    let setup = Setup::plain();
    setup.api.inject(ApiFault::refuse(401, "NotAuthenticated").of(Operation::Federate));
    let error = setup.as_instance(async |oci, vnic| oci.vnic(vnic).await.unwrap_err());
    assert!(error.kind() == Kind::Login);
    let story = format!("{:#}", anyhow::Error::new(error));
    assert!(story.contains("logging in by instance principal: fetching a session token from "), "{story}");
    assert!(story.contains("status 401"), "{story}");
}

#[tokio::test]
async fn rotated_api_key_is_read_after_old_key_is_refused() {
    let setup = Setup::plain();
    let vnic = setup.vcn.node("node-a").unwrap().vnics()[0].id.clone();
    setup.oci.vnic(&vnic).await.unwrap();
    setup.api.delete_keys();
    let refused = setup.oci.vnic(&vnic).await.unwrap_err();
    assert!(refused.kind() == Kind::Login, "{refused}");
    assert_eq!(setup.api.answered(Operation::GetVnic, 401), 1, "the same key is not tried twice");
    // Half of a rotation.
    let key = setup.folder.path().join("oci_api_key.pem");
    std::fs::write(&key, "").unwrap();
    assert!(setup.oci.vnic(&vnic).await.unwrap_err().kind() == Kind::Login);
    setup.api.write_user(setup.folder.path()).unwrap();
    setup.oci.vnic(&vnic).await.unwrap();
    setup.oci.vnic(&vnic).await.unwrap();
    assert_eq!([200, 401].map(|status| setup.api.answered(Operation::GetVnic, status)), [3, 3]);
}

#[tokio::test]
async fn fabric_delivers_to_an_address_while_its_object_exists() {
    let setup = Setup::plain();
    let made = setup.oci.attach_vnic(&setup.request("node-a"), &token("a")).await.unwrap().value;
    let vnic = setup.attached(&made.id).await.vnic_id.unwrap();
    let create = CreateAddress { vnic_id: Some(vnic.clone()), ..CreateAddress::default() };
    let object = setup.oci.create_address(Family::Ipv4, &create, &token("b")).await.unwrap().value;

    let (a, b) = (setup.vcn.node("node-a").unwrap(), setup.vcn.node("node-b").unwrap());
    let plugged = a.vnics().into_iter().find(|own| own.id == vnic).unwrap();
    // The agent's work, by hand: the address goes where the VNIC's own is.
    let mut moved = plugged.clone();
    moved.address.ipv4 = Some(object.ip_address);
    configure(a.netns(), &moved, &plugged.link, TableId(101));
    let peer = b.address(Family::Ipv4).unwrap();
    wait_for("it carries packets", || reaches(at(a.netns(), object.ip_address), at(b.netns(), peer)));

    setup.oci.delete_address(Family::Ipv4, &object.id).await.unwrap();
    assert!(!reaches(at(a.netns(), object.ip_address), at(b.netns(), peer)));
    wait_for_drop(
        &setup.vcn,
        &format!("node-a/{}", plugged.display_name),
        &DropReason::ForeignSource(object.ip_address),
    );
}
