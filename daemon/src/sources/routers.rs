//! Whether VNICs that the metadata service does not list carry packets. A virtual machine loses the device with the VNIC. Bare
//! metal loses nothing, so the router of the VNIC's subnet is asked on the VNIC's link: it answers while the port carries the
//! tag. The kernel takes some seconds to ask, so a thread does it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use datapath::host::{HostVnic, Placement};
use netlink::{Reachability, Socket};
use vcn::{IfName, Ocid};

/// The kernel asks three times, a second apart, after it has relied for five seconds on an earlier answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(12);

/// Between two checks of the answers.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long an answer is valid.
const HOLDS: Duration = Duration::from_secs(30);

/// Asks routers, in one thread at most.
#[derive(Clone)]
pub(crate) struct Routers {
    known: Arc<Mutex<RouterAnswers>>,
    /// Called when an answer changed.
    answered: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct RouterAnswers {
    asking: bool,
    asked: Option<Instant>,
    /// Whether the router answered, by VNIC; none if that is not known.
    answers: BTreeMap<Ocid, bool>,
}

/// Where to ask.
#[derive(Debug)]
struct Question {
    vnic: Ocid,
    link: IfName,
    /// The subnet's router in each family.
    routers: Vec<IpAddr>,
}

impl Routers {
    pub(crate) fn new(answered: impl Fn() + Send + Sync + 'static) -> Self {
        Self { known: Arc::default(), answered: Arc::new(answered) }
    }

    /// Those of the unlisted VNICs whose router does not answer, as far as that is known. Asks for all of them, unless it did a
    /// moment ago; forgets the others.
    pub(crate) fn silent(&self, unlisted: &[&HostVnic]) -> Vec<Ocid> {
        let questions: Vec<Question> = unlisted.iter().filter_map(|vnic| question(vnic)).collect();
        let mut known = self.known();
        known.answers.retain(|id, _| questions.iter().any(|question| question.vnic == *id));
        let silent = known.answers.iter().filter(|(_, answers)| !**answers).map(|(id, _)| id.clone()).collect();
        let due = known.asked.is_none_or(|asked| asked.elapsed() >= HOLDS)
            || questions.iter().any(|question| !known.answers.contains_key(&question.vnic));
        if !questions.is_empty() && !known.asking && due {
            (known.asking, known.asked) = (true, Some(Instant::now()));
            let asker = self.clone();
            let started = thread::Builder::new().name("routers".to_owned()).spawn(move || asker.ask(&questions));
            // Without a thread, at the next reconcile.
            known.asking = started.is_ok();
        }
        silent
    }

    fn ask(&self, questions: &[Question]) {
        let answers = asked(questions);
        let mut known = self.known();
        known.asking = false;
        let mut news = false;
        for (id, answers) in answers {
            news |= known.answers.insert(id, answers) != Some(answers);
        }
        drop(known);
        if news {
            (self.answered)();
        }
    }

    fn known(&self) -> MutexGuard<'_, RouterAnswers> {
        // Each change of it is complete, even if its thread panicked.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn question(vnic: &HostVnic) -> Option<Question> {
    let Placement::Vlan { link, .. } = &vnic.placement else { return None };
    let routers: Vec<IpAddr> = vnic.vnic.addressing.iter().map(|(_, at)| at.router).collect();
    (!routers.is_empty()).then(|| Question { vnic: vnic.vnic.id.clone(), link: link.clone(), routers })
}

/// Whether any router of each VNIC answers; without those of which the kernel does not know in time.
fn asked(questions: &[Question]) -> Vec<(Ocid, bool)> {
    let Ok(mut socket) = Socket::open() else { return Vec::new() };
    let mut open: Vec<&Question> = questions.iter().collect();
    let mut answers = Vec::new();
    for Question { link, routers, .. } in questions {
        let Ok(index) = socket.index_of(link) else { continue };
        // A refused request is seen below: there is no answer.
        routers.iter().for_each(|router| drop(socket.ask_neighbour(index, *router)));
    }
    let end = Instant::now() + ANSWERS_WITHIN;
    while !open.is_empty() && Instant::now() < end {
        thread::sleep(LOOK_EVERY);
        open.retain(|Question { vnic, link, routers }| match reach(&mut socket, link, routers) {
            Some(answer) => {
                answers.push((vnic.clone(), answer));
                false
            }
            None => true,
        });
    }
    answers
}

/// Whether one answers; `None` while that is open.
fn reach(socket: &mut Socket, link: &IfName, routers: &[IpAddr]) -> Option<bool> {
    let index = socket.index_of(link).ok()?;
    let mut failed = 0;
    for router in routers {
        match socket.reach(index, *router).ok()? {
            Some(Reachability::Confirmed) => return Some(true),
            Some(Reachability::Failed) => failed += 1,
            Some(Reachability::Open) | None => {}
        }
    }
    (failed == routers.len()).then_some(false)
}

impl fmt::Debug for Routers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routers").field("known", &*self.known()).finish_non_exhaustive()
    }
}
