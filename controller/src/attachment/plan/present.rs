//! An attached VNIC: its state, and the changes of it and of its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use api::AttachmentReason as Reason;
use ipnetwork::IpNetwork;
use oci::{FreeformTags, IpObject, Subnet, UpdateVnic, Vnic};
use vcn::{Family, Ocid};

use super::{Case, ObjectPlanner, Plan, attach_request};
use crate::attachment::mark::Mark;
use crate::attachment::observe::observed::{AddressList, ObservedVnic};
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::attachment::report::event_diff::is_no_answer;
use crate::attachment::report::{event_diff, node_report};
use crate::attachment::step::{Action, NewAddress, VnicVersion};

/// Fewer are requested one by one, because each then has its own answer.
const MIN_BULK_ITEMS: usize = 2;
/// How long addresses that were requested in bulk may take: OCI assigns them one by one. After that, single ones may be granted.
const BULK_WAIT: Duration = Duration::from_mins(1);
/// The most per request: few VNICs take more of a family.
const MAX_BULK_ITEMS: usize = 64;
/// The most addresses of a VNIC that pods share, as the definition bounds its status.
const SHARED_ADDRESSES: usize = 32;

/// Constant, so that nothing is written while it continues.
const NOT_CHANGED: &str = "OCI accepted the change and did not apply it; retried with backoff";
const NOT_RELEASED: &str = "OCI accepted the release of addresses and did not apply it; retried with backoff";

/// The addresses of a VNIC in one family.
struct FamilyAddresses<'a> {
    vnic: &'a ObservedVnic,
    family: Family,
    /// How many the spec says.
    count: u8,
    /// Those that the spec names.
    requested: Vec<IpAddr>,
    /// Those that count, in OCI's order.
    ours: Vec<&'a IpObject>,
}

impl ObjectPlanner<'_> {
    pub(super) fn present(&mut self, vnic: &ObservedVnic) -> AttachmentStatus {
        let case = self.case;
        let mut ready = None;
        if let Some(change) = change(case, &vnic.vnic.value, self.input.mark) {
            let version = VnicVersion { id: vnic.vnic.value.id.clone(), etag: vnic.vnic.etag.clone() };
            ready = Some(if self.was_applied(&version.id) {
                StatusReason::new(Reason::ChangePending, NOT_CHANGED)
            } else {
                self.plan.push(case, Action::Update(version, Box::new(change)));
                StatusReason::new(Reason::ChangePending, "the VNIC is being changed to match the spec")
            });
        }
        for family in Family::ALL {
            let cause = match vnic.addresses(family) {
                AddressList::Known(all) => self.addresses(&FamilyAddresses::of(case, vnic, all, family)),
                AddressList::Refused(cause) => unlisted(case, cause, self.plan),
                AddressList::NotRead => None,
            };
            if let Some(cause) = cause {
                ready.get_or_insert(cause);
            }
        }
        AttachmentStatus {
            attached: StatusReason::new(Reason::Attached, "the VNIC is on the instance"),
            ready: Some(ready.unwrap_or_else(|| StatusReason::new(Reason::Ready, "the VNIC matches the spec"))),
            facts: facts(case, vnic),
        }
    }

    /// Adds missing addresses of a family, and releases superfluous ones. Foreign addresses are not counted and stay.
    fn addresses(&mut self, of: &FamilyAddresses<'_>) -> Option<StatusReason> {
        let mut released = of.surplus();
        // Which of them pods have is not known here: all wait until none has any.
        let in_use = node_report::in_use(self.case.object, self.input.now).filter(|_| !released.is_empty());
        if in_use.is_some() {
            released.clear();
        }
        let is_ignored = self.release(of.family, &released);
        let created = self.create(of);
        let (count, family) = (of.count, of.family);
        let message = if created > 0 {
            format!("the VNIC does not have its {count} {family} addresses yet")
        } else if in_use.is_some() {
            return in_use;
        } else if is_ignored {
            NOT_RELEASED.to_owned()
        } else if !released.is_empty() {
            format!("the VNIC still has more than its {count} {family} addresses")
        } else {
            return None;
        };
        Some(StatusReason::new(Reason::AddressesPending, message))
    }

    /// Releases addresses. Returns whether OCI accepted a release without effect.
    fn release(&mut self, family: Family, released: &[&IpObject]) -> bool {
        let mut is_ignored = false;
        for own in released {
            let (id, address) = (own.id.clone(), own.ip_address);
            if self.was_applied(&id) {
                is_ignored = true;
            } else {
                self.plan.push(self.case, Action::DeleteAddress { family, id, address });
            }
        }
        is_ignored
    }

    /// Whether OCI accepted a change of this VNIC, or the release of this address, in this reconcile: the queue's backoff precedes
    /// the next request.
    fn was_applied(&mut self, id: &Ocid) -> bool {
        let was_applied = self.input.progress.applied.contains(id);
        self.plan.is_incomplete |= was_applied;
        was_applied
    }

    /// Requests the missing addresses. Returns how many are missing.
    fn create(&mut self, of: &FamilyAddresses<'_>) -> usize {
        let case = self.case;
        let missing = of.missing();
        for address in &missing {
            let request = self.new_address(of, &address.to_string(), Some(*address));
            self.plan.push(case, Action::CreateAddress(request, Some(*address)));
        }
        let lacking = usize::from(of.count).saturating_sub(missing.len() + of.ours.len());
        let bulk = case.state.bulk_age(case.object.metadata.generation, self.input.read_at);
        let is_bulk_refused = self.input.progress.refused_bulks.contains(&case.name);
        if lacking > 0 && bulk.is_some_and(|age| age < BULK_WAIT) {
            // They appear one by one. A request meanwhile would have another token and give too many; a new process cannot know
            // that, and releases them later.
            self.plan.waits = true;
        } else if lacking >= MIN_BULK_ITEMS && bulk.is_none() && !is_bulk_refused {
            for (number, first) in (0..lacking).step_by(MAX_BULK_ITEMS).enumerate() {
                let count = (lacking - first).min(MAX_BULK_ITEMS);
                let new = self.new_address(of, &format!("several/{number}"), None);
                self.plan.push(case, Action::CreateAddresses(new, u32::try_from(count).unwrap_or(u32::MAX)));
            }
        } else {
            for number in 0..lacking {
                let new = self.new_address(of, &number.to_string(), None);
                self.plan.push(case, Action::CreateAddress(new, None));
            }
        }
        missing.len() + lacking
    }

    /// The request for an address: the same while spec and state are the same, in every process.
    fn new_address(&self, of: &FamilyAddresses<'_>, what: &str, requested: Option<IpAddr>) -> NewAddress {
        let (case, mark) = (self.case, self.input.mark);
        let mut known: Vec<&str> = of.ours.iter().map(|own| own.id.as_str()).collect();
        known.sort_unstable();
        let generation = case.object.metadata.generation.unwrap_or_default();
        let basis = format!("{generation}/{}/{}", case.state.spent_address_tokens, known.join(","));
        let subnet = self.subnet().filter(|_| of.family == Family::Ipv6);
        let block = subnet.and_then(|subnet| block(subnet, requested, own_ipv6(case, of.vnic)));
        // A token belongs to one body: the subnet may have got another block since.
        let what = block.map_or_else(|| what.to_owned(), |block| format!("{what}/{block}"));
        let id = &of.vnic.vnic.value.id;
        let token = mark.token("address", &case.uid, &[id.as_str(), &of.family.to_string(), &basis, &what]);
        NewAddress { vnic: id.clone(), family: of.family, block, tags: attach_request::tags(case, mark), token }
    }
}

impl<'a> FamilyAddresses<'a> {
    fn of(case: &Case<'_>, vnic: &'a ObservedVnic, all: &'a [IpObject], family: Family) -> Self {
        let template = &case.object.spec.vnic;
        let count = match family {
            Family::Ipv4 => template.ipv4_count,
            Family::Ipv6 => template.ipv6_count,
        };
        let requested = case.object.spec.requested_addresses.iter().copied();
        let requested = requested.filter(|address| Family::of(*address) == family).collect();
        Self { vnic, family, count, requested, ours: ours(case, all, family) }
    }

    fn missing(&self) -> Vec<IpAddr> {
        let is_there = |address: &IpAddr| self.ours.iter().any(|own| own.ip_address == *address);
        self.requested.iter().copied().filter(|address| !is_there(address)).collect()
    }

    /// Those to release. None is released for a missing requested one: that may be in use elsewhere, and pods of another address
    /// would lose their network without effect. Once it is assigned, there is one too many.
    fn surplus(&self) -> Vec<&'a IpObject> {
        let spare = self.ours.iter().copied().filter(|own| !self.requested.contains(&own.ip_address));
        // Always the same ones, so that a new plan continues the last one.
        let mut released: Vec<&IpObject> = spare.collect();
        released.sort_by_key(|own| std::cmp::Reverse(own.ip_address));
        released.truncate(self.ours.len().saturating_sub(usize::from(self.count)));
        released
    }
}

/// The differences of the VNIC itself.
fn change(case: &Case<'_>, vnic: &Vnic, mark: &Mark) -> Option<UpdateVnic> {
    let template = &case.object.spec.vnic;
    let groups = |ids: &[vcn::Ocid]| ids.iter().cloned().collect::<BTreeSet<_>>();
    let (name, tags) = (attach_request::display_name(case), tags(case, vnic, mark));
    let change = UpdateVnic {
        display_name: (vnic.display_name.as_ref() != Some(&name)).then_some(name),
        nsg_ids: (groups(&vnic.nsg_ids) != groups(&template.nsg_ids)).then(|| template.nsg_ids.clone()),
        skip_source_dest_check: (vnic.skip_source_dest_check != template.skip_source_dest_check)
            .then_some(template.skip_source_dest_check),
        freeform_tags: (vnic.freeform_tags != tags).then_some(tags),
    };
    (change != UpdateVnic::default()).then_some(change)
}

/// The tags that it should have: the spec's and the controller's. Foreign tags stay once it matched the spec, missing addresses
/// apart; before that, some may be left from an earlier spec.
fn tags(case: &Case<'_>, vnic: &Vnic, mark: &Mark) -> FreeformTags {
    let own = attach_request::tags(case, mark);
    if !event_diff::is_vnic_in_sync(case.object) {
        return own;
    }
    Mark::others(&vnic.freeform_tags).chain(own).collect()
}

/// The reason if OCI does not list a family's addresses. `None` if they matched the spec before and OCI does not answer, or answers
/// with its first 404: neither changes the report.
fn unlisted(case: &Case<'_>, cause: &StatusReason, plan: &mut Plan) -> Option<StatusReason> {
    let is_first = case.state.unseen_reconciles < 2;
    let no_answer = is_no_answer(cause.reason);
    plan.is_incomplete = true;
    if event_diff::is_settled(case.object) && (is_first || no_answer) {
        plan.waits |= is_first;
        return None;
    }
    if no_answer && event_diff::is_answered(case.object) {
        return case.as_reported().ready;
    }
    Some(cause.clone())
}

/// The addresses that count: those with our tag, and the requested ones.
fn ours<'a>(case: &Case<'_>, all: &'a [IpObject], family: Family) -> Vec<&'a IpObject> {
    let counts = |own: &&IpObject| {
        !own.is_primary
            && Family::of(own.ip_address) == family
            && (Mark::counts_for(&own.freeform_tags, &case.uid)
                || case.object.spec.requested_addresses.contains(&own.ip_address))
    };
    all.iter().filter(counts).collect()
}

/// The VNIC's own IPv6 address, which OCI does not mark: the one that no list entry is for.
fn own_ipv6(case: &Case<'_>, own: &ObservedVnic) -> Option<IpAddr> {
    let reported = event_diff::last(case.object.status.as_ref()).facts.own_addresses;
    let beside = match &own.ipv6 {
        AddressList::Known(all) => Some(ours(case, all, Family::Ipv6)),
        AddressList::Refused(_) | AddressList::NotRead => None,
    };
    let is_own = |address: &&IpAddr| match &beside {
        Some(beside) => !beside.iter().any(|other| other.ip_address == **address),
        // Only the list and the last status show which it is.
        None => reported.contains(address),
    };
    own.vnic.value.ipv6_addresses.iter().find(is_own).copied()
}

/// The block of a new address, which OCI requires if there are several. It is the requested address's own block, otherwise the
/// VNIC's, or else the first one, so each attempt uses the same block.
fn block(subnet: &Subnet, requested: Option<IpAddr>, own: Option<IpAddr>) -> Option<IpNetwork> {
    let blocks = subnet.ipv6_blocks();
    let with = |address: IpAddr| blocks.iter().find(|block| block.contains(address));
    let block = requested.and_then(with).or_else(|| own.and_then(with)).or_else(|| blocks.first());
    block.filter(|_| blocks.len() > 1).copied()
}

fn facts(case: &Case<'_>, own: &ObservedVnic) -> Facts {
    let vnic = &own.vnic.value;
    let shared = |all: &[IpObject]| {
        let mut addresses: Vec<IpAddr> = ours(case, all, Family::Ipv4).iter().map(|own| own.ip_address).collect();
        // Ordered, so that nothing is written while nothing changes; bounded as the definition is.
        addresses.sort_unstable();
        addresses.truncate(SHARED_ADDRESSES);
        addresses
    };
    let pod_addresses = match &own.ipv4 {
        _ if !case.object.spec.vnic.is_shared_by_pods() => Vec::new(),
        AddressList::Known(all) => shared(all),
        AddressList::Refused(_) | AddressList::NotRead => {
            event_diff::last(case.object.status.as_ref()).facts.pod_addresses
        }
    };
    Facts {
        vnic_id: Some(vnic.id.clone()),
        own_addresses: vnic.private_ip.into_iter().chain(own_ipv6(case, own)).collect(),
        pod_addresses,
    }
}
