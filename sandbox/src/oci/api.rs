//! One request from its bytes to its answer: the order of the checks, and what is common to all operations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};
use vcn::{Family, Ocid};

use super::AttachmentRecord;
use super::answer::{Answer, Asked, Outcome, Refused, not_found, refuse};
use super::books::{Books, Replay};
use super::fault::{ApiFaultKind, pick};
use super::follow::follow;
use super::route::{Operation, Route, route};
use super::settings::OciSettings;
use super::signature::{Signature, not_authenticated};
use crate::Vcn;
use crate::authority::{Authority, user_key};
use crate::error::{Error, Result};
use crate::identity::TENANCY;

/// The API, shared by the server's connections and the test's handle.
#[derive(Debug)]
pub(super) struct Api {
    vcn: Arc<Vcn>,
    settings: OciSettings,
    authority: Arc<Authority>,
    /// Locked before anything of the VCN, never after.
    books: Mutex<Books>,
}

/// What to do with a request.
#[derive(Debug)]
pub(super) struct Handled {
    /// `None` breaks the connection.
    pub(super) answer: Option<Answer>,
    pub(super) delay: Duration,
    pub(super) later: Vec<(Duration, Task)>,
}

/// What was accepted and is carried out later.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Attach(String),
    Detach(String),
    /// The attachment is as if it had not been asked to change.
    GiveUp(String),
    CreateAddresses {
        node: String,
        vnic: Ocid,
        family: Family,
        items: Vec<Map<String, Value>>,
    },
    DeleteAddresses {
        addresses: Vec<(String, Ocid, IpNetwork)>,
    },
}

/// A new user.
pub(super) struct User {
    pub(super) user: String,
    pub(super) fingerprint: String,
    pub(super) key_pem: String,
}

/// What an operation comes to: the answer, what it made, and what follows.
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) made: Option<String>,
    pub(super) later: Option<(Duration, Task)>,
}

impl From<Answer> for Done {
    fn from(answer: Answer) -> Self {
        Self { answer, made: None, later: None }
    }
}

impl Api {
    pub(super) fn new(vcn: Arc<Vcn>, settings: OciSettings) -> Result<Self> {
        let authority = Arc::new(Authority::new()?);
        vcn.inventory().set_authority(Arc::clone(&authority));
        let books = Mutex::new(Books::new(settings.seed));
        Ok(Self { vcn, settings, authority, books })
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) const fn settings(&self) -> &OciSettings {
        &self.settings
    }

    pub(super) const fn vcn(&self) -> &Arc<Vcn> {
        &self.vcn
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        // A handler that panicked left its own request half done, as a crashed server would.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The books as they should be now.
    pub(super) fn current(&self) -> MutexGuard<'_, Books> {
        let mut books = self.books();
        follow(&mut books, &self.vcn);
        let kept = self.settings.detached_kept;
        books.attachments.retain(|_, attachment| attachment.ended.is_none_or(|ended| ended.elapsed() < kept));
        books
    }

    /// Answers a request to the core and federation services.
    pub(super) fn handle(&self, asked: &Asked) -> Handled {
        if asked.path == "/v1/x509" {
            return self.guarded(Operation::Federate, || self.federate(asked).map(Done::from));
        }
        let Some(route) = route(&asked.method, &asked.path) else {
            return Handled::of(
                refuse(404, "NotFound", format!("{} {} is not emulated", asked.method, asked.path)).into(),
            );
        };
        self.guarded(route.operation, || {
            self.authenticate(asked)?;
            self.within_rate()?;
            if self.books().forbidden.contains(&route.operation) {
                return Err(not_found());
            }
            self.perform(&route, asked)
        })
    }

    /// Answers a request to proxymux.
    pub(super) fn handle_workload(&self, asked: &Asked) -> Handled {
        if asked.path != "/resourcePrincipalSessionTokens" {
            return Handled::of(refuse(404, "NotFound", "not found").into());
        }
        self.guarded(Operation::WorkloadToken, || self.workload_token(asked).map(Done::from))
    }

    /// Lets faults befall the work, and counts.
    fn guarded(&self, operation: Operation, work: impl FnOnce() -> Outcome<Done>) -> Handled {
        let fault = {
            let mut books = self.books();
            let Books { faults, chance, .. } = &mut *books;
            pick(faults, operation, chance)
        };
        let mut handled = match &fault {
            Some(ApiFaultKind::Refuse { status, code, retry_after }) => {
                let message = "a fault of the sandbox's making".to_owned();
                let refused = Refused { status: *status, code: code.clone(), message, retry_after: *retry_after };
                Handled::of(refused.into())
            }
            Some(ApiFaultKind::LoseRequest) => Handled { answer: None, delay: Duration::ZERO, later: Vec::new() },
            _ => match work() {
                Ok(done) => Handled {
                    answer: Some(done.answer),
                    delay: Duration::ZERO,
                    later: done.later.into_iter().collect(),
                },
                Err(refused) => Handled::of(refused.into()),
            },
        };
        match fault {
            Some(ApiFaultKind::GiveUp) => {
                for (_, task) in &mut handled.later {
                    if let Task::Attach(id) | Task::Detach(id) = task {
                        *task = Task::GiveUp(id.clone());
                    }
                }
            }
            Some(ApiFaultKind::Delay(delay)) => handled.delay = delay,
            Some(ApiFaultKind::LoseAnswer) => handled.answer = None,
            Some(ApiFaultKind::FailAfterwards) => {
                handled.answer = Some(refuse(500, "InternalServerError", "a fault of the sandbox's making").into());
            }
            _ => {}
        }
        let status = handled.answer.as_ref().map_or(0, |answer| answer.status);
        *self.books().answered.entry((operation, status)).or_default() += 1;
        handled
    }

    fn authenticate(&self, asked: &Asked) -> Outcome<()> {
        let signature = Signature::of(asked)?;
        let key = {
            let books = self.books();
            match signature.key_id.strip_prefix("ST$") {
                Some(token) => {
                    let session = books.tokens.get(token).filter(|session| session.expires > SystemTime::now());
                    session.map(|session| session.public_key.clone())
                }
                None => books.users.get(signature.key_id).cloned(),
            }
        };
        let key = key.ok_or_else(|| not_authenticated("the key id is not known, or its token is over"))?;
        signature.check(asked, &key, self.settings.clock_skew, true)
    }

    fn within_rate(&self) -> Outcome<()> {
        let Some(rate) = self.settings.per_second else { return Ok(()) };
        let mut books = self.books();
        let (tokens, counted) = books.allowance;
        let now = Instant::now();
        // A second's worth at once.
        let tokens = (tokens + now.duration_since(counted).as_secs_f64() * rate).min(rate.max(1.0));
        books.allowance = (if tokens >= 1.0 { tokens - 1.0 } else { tokens }, now);
        if tokens >= 1.0 {
            return Ok(());
        }
        let refused = refuse(429, "TooManyRequests", "Too many requests for the user");
        Err(Refused { retry_after: self.settings.retry_after, ..refused })
    }

    fn perform(&self, route: &Route, asked: &Asked) -> Outcome<Done> {
        let mut books = self.current();
        let token = asked.header("opc-retry-token").filter(|_| route.operation.takes_retry_token());
        if let Some(token) = token {
            if token.len() > 64 {
                return Err(refuse(400, "InvalidParameter", "opc-retry-token has more than 64 characters"));
            }
            if let Some(answer) = books.replay(token, &asked.body)? {
                return Ok(answer.into());
            }
        }
        let done = self.dispatch(&mut books, route, asked)?;
        if let Some(token) = token {
            let until = Instant::now() + self.settings.retry_token_life;
            let replay =
                Replay { body: asked.body.clone(), answer: done.answer.clone(), made: done.made.clone(), until };
            books.replays.insert(token.to_owned(), replay);
        }
        Ok(done)
    }

    fn dispatch(&self, books: &mut Books, route: &Route, asked: &Asked) -> Outcome<Done> {
        let Route { operation, id, family } = route;
        match operation {
            Operation::GetInstance => self.get_instance(books, id).map(Done::from),
            Operation::ListShapes => self.list_shapes(asked).map(Done::from),
            Operation::GetSubnet => self.get_subnet(id).map(Done::from),
            Operation::AttachVnic => self.attach_vnic(books, asked),
            Operation::ListVnicAttachments => self.list_attachments(books, asked).map(Done::from),
            Operation::GetVnicAttachment => Self::get_attachment(books, id).map(Done::from),
            Operation::DetachVnic => self.detach_vnic(books, id, asked),
            Operation::GetVnic => self.get_vnic(books, id).map(Done::from),
            Operation::UpdateVnic => self.update_vnic(books, id, asked).map(Done::from),
            Operation::CreateAddress => self.create_address(books, *family, asked),
            Operation::ListAddresses => self.list_addresses(books, *family, asked).map(Done::from),
            Operation::GetAddress => Self::get_address(books, id).map(Done::from),
            Operation::DeleteAddress => self.delete_address(books, id, asked).map(Done::from),
            Operation::BulkCreateAddresses => self.create_addresses(books, *family, asked),
            Operation::BulkDeleteAddresses => self.delete_addresses(books, *family, asked),
            Operation::Federate | Operation::WorkloadToken => Err(not_found()),
        }
    }

    /// Carries out what was accepted.
    pub(super) fn finish(&self, task: Task) {
        match task {
            Task::Attach(id) => self.finish_attach(&id),
            Task::Detach(id) => self.finish_detach(&id),
            Task::GiveUp(id) => self.give_up(&id),
            Task::CreateAddresses { node, vnic, family, items } => self.finish_create((&node, &vnic), family, &items),
            Task::DeleteAddresses { addresses } => {
                for (node, vnic, network) in addresses {
                    // Whoever was faster did the same.
                    let _ = self.vcn.unassign(&node, &vnic, network);
                }
            }
        }
    }

    pub(super) fn add_user(&self) -> Result<User> {
        let key = user_key()?;
        let mut books = self.books();
        let user = books.new_id("user");
        // The real one is a hash of the key; only its form and being the same everywhere matter.
        let fingerprint: Vec<_> = key.public_key.iter().skip(40).take(16).map(|byte| format!("{byte:02x}")).collect();
        let fingerprint = fingerprint.join(":");
        books.users.insert(format!("{TENANCY}/{user}/{fingerprint}"), key.public_key);
        Ok(User { user, fingerprint, key_pem: key.pem })
    }

    pub(super) fn set_instance_state(&self, node: &str, state: &str) -> Result<()> {
        let secondary: Vec<Ocid> = {
            let instances = self.vcn.inventory().lock();
            let instance = instances.get(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            instance.vnics.iter().skip(1).map(|vnic| vnic.id.clone()).collect()
        };
        self.books().instance_states.insert(node.to_owned(), state.to_owned());
        if matches!(state, "TERMINATING" | "TERMINATED") {
            for vnic in secondary {
                self.vcn.detach_vnic(node, &vnic)?;
            }
        }
        Ok(())
    }

    pub(super) fn attachments(&self) -> Vec<AttachmentRecord> {
        let books = self.current();
        let all = books.attachments.iter().map(|(id, attachment)| AttachmentRecord {
            id: id.clone(),
            node: attachment.node.clone(),
            instance: attachment.instance.clone(),
            state: attachment.state.name(),
            vnic: attachment.vnic.id.clone(),
            primary: attachment.vnic.primary,
            tags: tags(books.vnics.get(&attachment.vnic.id).map_or(&attachment.fields, |record| &record.fields)),
        });
        all.collect()
    }

    /// Whether an instance is there.
    pub(super) fn is_running(&self, id: &str) -> bool {
        let name = self.instance_name(id);
        name.is_some_and(|name| self.books().instance_states.get(&name).is_none_or(|state| state == "RUNNING"))
    }

    pub(super) fn instance_name(&self, id: &str) -> Option<String> {
        let instances = self.vcn.inventory().lock();
        instances.values().find(|instance| instance.id.as_str() == id).map(|instance| instance.name.clone())
    }
}

impl Handled {
    const fn of(answer: Answer) -> Self {
        Self { answer: Some(answer), delay: Duration::ZERO, later: Vec::new() }
    }
}

fn tags(fields: &Map<String, Value>) -> std::collections::BTreeMap<String, String> {
    let tags = fields.get("freeformTags").and_then(Value::as_object).into_iter().flatten();
    tags.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
