//! A cloud in memory, for tests of those who ask. Clones share their state. It has the states, limits and refusals that
//! planning depends on; what the wire does is the sandbox's.

mod calls;
mod state;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use vcn::Ocid;

use crate::attachment::{AttachmentState, VnicAttachment};
use crate::error::{Error, Failure, Refusal};
use crate::instance::{Instance, InstanceState};
use crate::request_id::RequestId;
use crate::subnet::Subnet;
use crate::vnic::Vnic;
use calls::come;
use state::State;

/// A cloud in memory.
#[derive(Clone, Debug, Default)]
pub struct FakeCloud(Arc<Mutex<State>>);

impl FakeCloud {
    /// An empty cloud.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an instance with its primary VNIC in a subnet; `most` VNICs in all.
    pub fn add_instance(&self, instance: Instance, subnet: &Ocid, most: usize) {
        self.state().add_instance(instance, subnet, most);
    }

    /// Adds a subnet.
    pub fn add_subnet(&self, subnet: Subnet) {
        self.state().subnets.insert(subnet.id.clone(), subnet);
    }

    /// Changes an instance: its state, for example.
    pub fn change_instance(&self, id: &Ocid, change: impl FnOnce(&mut Instance)) {
        if let Some((instance, _)) = self.state().instances.get_mut(id) {
            change(instance);
        }
    }

    /// Changes a VNIC behind everybody's back: its state, for example.
    pub fn change_vnic(&self, id: &Ocid, change: impl FnOnce(&mut Vnic)) {
        if let Some((_, vnic)) = self.state().attachments.iter_mut().find(|(_, vnic)| vnic.id == *id) {
            change(vnic);
        }
    }

    /// Somebody terminates an instance: it is TERMINATING, and its VNICs are gone already, until the cloud settles.
    pub fn terminate(&self, id: &Ocid) {
        self.change_instance(id, |instance| instance.lifecycle_state = InstanceState::Terminating);
        let mut state = self.state();
        let own = state.attachments.iter().filter(|(own, _)| own.instance_id == *id);
        let own: Vec<Ocid> = own.map(|(own, _)| own.id.clone()).collect();
        own.iter().for_each(|id| state.set(id, AttachmentState::Detached));
    }

    /// An instance that ended long ago: nothing of it is to be found.
    pub fn forget_instance(&self, id: &Ocid) {
        let mut state = self.state();
        state.instances.remove(id);
        state.attachments.retain(|(attachment, _)| attachment.instance_id != *id);
    }

    /// An instance is moved to a compartment that nobody here may look into. Its VNICs stay in their subnets'.
    pub fn hide_instance(&self, id: &Ocid, compartment: &Ocid) {
        let mut state = self.state();
        state.instances.remove(id);
        for (attachment, _) in state.attachments.iter_mut().filter(|(attachment, _)| attachment.instance_id == *id) {
            attachment.compartment_id = compartment.clone();
        }
    }

    /// What is ATTACHING becomes ATTACHED, what is DETACHING becomes DETACHED; what is STARTING, STOPPING or TERMINATING is
    /// RUNNING, STOPPED or TERMINATED.
    pub fn settle(&self) {
        let mut state = self.state();
        for (instance, _) in state.instances.values_mut() {
            instance.lifecycle_state = match instance.lifecycle_state {
                InstanceState::Starting => InstanceState::Running,
                InstanceState::Stopping => InstanceState::Stopped,
                InstanceState::Terminating => InstanceState::Terminated,
                lasting => lasting,
            };
        }
        state.settle();
        // What has no room does not come.
        let _ = come(&mut state);
    }

    /// From now on so many addresses of a bulk request come at once, and as many more whenever the cloud settles.
    pub fn pace_bulks(&self, addresses: usize) {
        self.state().bulk_pace = Some(addresses);
    }

    /// Takes a VNIC away, as somebody else might.
    pub fn detach_behind(&self, attachment: &Ocid) {
        self.state().set(attachment, AttachmentState::Detached);
    }

    /// The cloud gives up what it has begun: what is ATTACHING becomes DETACHED, what is DETACHING becomes ATTACHED.
    pub fn give_up(&self, attachment: &Ocid) {
        let mut state = self.state();
        match state.attachment(attachment).map(|found| found.value.lifecycle_state) {
            Ok(AttachmentState::Attaching) => state.set(attachment, AttachmentState::Detached),
            Ok(AttachmentState::Detaching) => state.set(attachment, AttachmentState::Attached),
            _ => {}
        }
    }

    /// From now on a request for a VNIC in this subnet is refused like this.
    pub fn refuse_vnics_in(&self, subnet: &Ocid, (status, code): (u16, &str)) {
        let (code, message) = (code.to_owned(), "as the test wants".to_owned());
        self.state().refused_subnets.insert(subnet.clone(), Refusal { status, code, message, retry_after: None });
    }

    /// Somebody deletes an address, be it a VNIC's own.
    pub fn delete_behind(&self, address: IpAddr) {
        let mut state = self.state();
        state.addresses.retain(|own| own.ip_address != address);
        state.attachments.iter_mut().for_each(|(_, vnic)| vnic.ipv6_addresses.retain(|own| *own != address));
    }

    /// From now on a new attachment is missing from the first so many lists that it should be in.
    pub fn lag_lists(&self, lists: u32) {
        self.state().list_lag = lists;
    }

    /// The next so many lists of an instance have no attachment.
    pub fn hide_all(&self, instance: &Ocid, lists: u32) {
        let all = self.attachments().into_iter().filter(|attachment| attachment.instance_id == *instance);
        all.for_each(|attachment| self.hide(&attachment.id, lists));
    }

    /// The next so many lists do not have an attachment.
    pub fn hide(&self, attachment: &Ocid, lists: u32) {
        self.state().unlisted.insert(attachment.clone(), lists);
    }

    /// From now on lists show an attachment in the state that it has now.
    pub fn freeze_in_lists(&self, attachment: &Ocid) {
        let mut state = self.state();
        let found = state.attachments.iter().find(|(own, _)| own.id == *attachment).map(|(own, _)| own.lifecycle_state);
        state.frozen.extend(found.map(|found| (attachment.clone(), found)));
    }

    /// The next call of an operation (`AttachVnic`; `ListAddresses`, or of one family `ListIpv6s`) is refused like this; several are refused in turn. With `done`, it is
    /// carried out all the same: the answer is lost.
    pub fn fail_next(&self, operation: &'static str, (status, code): (u16, &str), done: bool) {
        self.refuse_next(operation, (status, code, "as the test wants"), done);
    }

    /// The same, in these words.
    pub fn refuse_next(&self, operation: &'static str, (status, code, message): (u16, &str, &str), done: bool) {
        let (code, message) = (code.to_owned(), message.to_owned());
        let refusal = Refusal { status, code, message, retry_after: None };
        self.state().failures.push((operation, refusal, done));
    }

    /// From now on an operation (`UpdateVnic`, `DeleteAddress`) is taken and not carried out.
    pub fn take_in_vain(&self, operation: &'static str) {
        self.state().in_vain.insert(operation);
    }

    /// It is carried out again.
    pub fn carry_out(&self, operation: &'static str) {
        self.state().in_vain.remove(operation);
    }

    /// Answers to an operation come so much later from now on than they were given.
    pub fn answer_late(&self, operation: &'static str, pause: Duration) {
        self.state().late.insert(operation, pause);
    }

    /// How a request to attach is refused from now on that bears the token of another one; else it is as the emulated API does.
    pub fn refuse_other_wishes(&self, (status, code, message): (u16, &str, &str)) {
        let (code, message) = (code.to_owned(), message.to_owned());
        self.state().other_wish = Some(Refusal { status, code, message, retry_after: None });
    }

    /// Whoever asks about this from now on is answered 404.
    pub fn forbid(&self, subject: &Ocid) {
        self.state().forbidden.insert(subject.to_string());
    }

    /// Not any more.
    pub fn allow(&self, subject: &Ocid) {
        self.state().forbidden.remove(subject.as_str());
    }

    /// After so many more calls, one never answers, and is carried out all the same with `done`: who asks can only be given
    /// up at that point, as a process that is killed is.
    pub fn halt(&self, calls: usize, done: bool) {
        self.state().halt = Some((calls, done));
    }

    /// All calls so far, in order: operation and subject.
    #[must_use]
    pub fn calls(&self) -> Vec<(&'static str, String)> {
        self.state().calls.clone()
    }

    /// All attachments.
    #[must_use]
    pub fn attachments(&self) -> Vec<VnicAttachment> {
        self.state().attachments.iter().map(|(attachment, _)| attachment.clone()).collect()
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        subject: &Ocid,
        work: impl FnOnce(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        self.call_as((operation, operation), subject, work).await
    }

    /// `named`: what it is called here, and in the API, which has two names for what is one here.
    async fn call_as<T>(
        &self,
        (operation, named): (&'static str, &'static str),
        subject: &Ocid,
        work: impl FnOnce(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        let Some(answer) = self.answer((operation, named), subject, work) else { return std::future::pending().await };
        let late = self.state().late.get(operation).copied();
        if let Some(pause) = late {
            sleep(pause).await;
        }
        answer
    }

    /// `None` when the answer never comes.
    fn answer<T>(
        &self,
        (operation, named): (&'static str, &'static str),
        subject: &Ocid,
        work: impl FnOnce(&mut State) -> Result<T, Refusal>,
    ) -> Option<Result<T, Error>> {
        let mut state = self.state();
        state.calls.push((operation, subject.to_string()));
        if let Some((calls, done)) = state.halt.take() {
            match calls.checked_sub(1) {
                Some(left) => state.halt = Some((left, done)),
                None => {
                    if done {
                        let _ = work(&mut state);
                    }
                    return None;
                }
            }
        }
        let planned = state.failures.iter().position(|(planned, ..)| *planned == operation || *planned == named);
        let failed = |refusal: Refusal| Error::Call {
            operation: named,
            subject: subject.to_string(),
            attempts: 1,
            request_id: RequestId::new(),
            outcome_unknown: refusal.status >= 500 && !operation.starts_with("Get") && !operation.starts_with("List"),
            source: Box::new(Failure::Refused(refusal)),
        };
        if state.forbidden.contains(subject.as_str()) {
            return Some(Err(failed(state::not_found())));
        }
        let Some(planned) = planned else { return Some(work(&mut state).map_err(failed)) };
        let (_, refusal, done) = state.failures.remove(planned);
        if done {
            let _ = work(&mut state);
        }
        Some(Err(failed(refusal)))
    }

    /// A panic elsewhere cannot leave this state half written, so a poisoned lock is taken as it is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
