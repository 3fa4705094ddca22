//! Whether VNICs that the metadata service does not list carry packets. A virtual machine's device goes with its VNIC; on
//! bare metal nothing goes, so the router of the VNIC's subnet is asked on the VNIC's link: it answers where the port still
//! carries the tag. The kernel takes some seconds to ask, so that is done beside the passes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use datapath::host::{HostVnic, Placement};
use netlink::{Reach, Socket};
use vcn::{IfName, Ocid};

/// The kernel asks three times, a second apart, after it has hoped for five seconds that an answer of before still holds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(12);

/// Between two looks at what came of it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// An answer is as good as this for so long.
const HOLDS: Duration = Duration::from_secs(30);

/// Asks routers. There is one thread at most.
#[derive(Clone)]
pub(crate) struct Routers {
    known: Arc<Mutex<Known>>,
    /// Told when an answer is another than before.
    told: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Known {
    asking: bool,
    asked: Option<Instant>,
    /// Whether the router answered, by VNIC; nothing where that could not be told.
    answers: BTreeMap<Ocid, bool>,
}

/// Where to ask: a link, and the subnet's router in each family.
type Question = (Ocid, IfName, Vec<IpAddr>);

impl Routers {
    pub(crate) fn new(told: impl Fn() + Send + Sync + 'static) -> Self {
        Self { known: Arc::default(), told: Arc::new(told) }
    }

    /// Those of the doubtful VNICs whose router does not answer, as far as that is known. It is asked about all of them, unless it
    /// was a moment ago; what was known is forgotten of others.
    pub(crate) fn silent(&self, doubtful: &[&HostVnic]) -> Vec<Ocid> {
        let questions: Vec<Question> = doubtful.iter().filter_map(|vnic| question(vnic)).collect();
        let mut known = self.known();
        known.answers.retain(|id, _| questions.iter().any(|(asked, ..)| asked == id));
        let silent = known.answers.iter().filter(|(_, answers)| !**answers).map(|(id, _)| id.clone()).collect();
        let due = known.asked.is_none_or(|asked| asked.elapsed() >= HOLDS)
            || questions.iter().any(|(id, ..)| !known.answers.contains_key(id));
        if !questions.is_empty() && !known.asking && due {
            (known.asking, known.asked) = (true, Some(Instant::now()));
            let asker = self.clone();
            let started = thread::Builder::new().name("routers".to_owned()).spawn(move || asker.ask(&questions));
            // No thread to be had: at the next pass.
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
            (self.told)();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change of it is whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn question(vnic: &HostVnic) -> Option<Question> {
    let Placement::Vlan { link, .. } = &vnic.placement else { return None };
    let routers: Vec<IpAddr> = vnic.vnic.addressing.iter().map(|(_, at)| at.router).collect();
    (!routers.is_empty()).then(|| (vnic.vnic.id.clone(), link.clone(), routers))
}

/// Whether any router of each answers; nothing is said where the kernel does not say it in time.
fn asked(questions: &[Question]) -> Vec<(Ocid, bool)> {
    let Ok(mut socket) = Socket::open() else { return Vec::new() };
    let mut open: Vec<&Question> = questions.iter().collect();
    let mut answers = Vec::new();
    for (_, link, routers) in questions {
        let Ok(index) = socket.index_of(link) else { continue };
        // What is refused is seen below: there is no answer.
        routers.iter().for_each(|router| drop(socket.ask_neighbour(index, *router)));
    }
    let end = Instant::now() + ANSWERS_WITHIN;
    while !open.is_empty() && Instant::now() < end {
        thread::sleep(LOOK_EVERY);
        open.retain(|(id, link, routers)| match reach(&mut socket, link, routers) {
            Some(answer) => {
                answers.push((id.clone(), answer));
                false
            }
            None => true,
        });
    }
    answers
}

/// Whether one answers, or none does; nothing as long as that is open.
fn reach(socket: &mut Socket, link: &IfName, routers: &[IpAddr]) -> Option<bool> {
    let index = socket.index_of(link).ok()?;
    let mut failed = 0;
    for router in routers {
        match socket.reach(index, *router).ok()? {
            Some(Reach::Confirmed) => return Some(true),
            Some(Reach::Failed) => failed += 1,
            Some(Reach::Open) | None => {}
        }
    }
    (failed == routers.len()).then_some(false)
}

impl fmt::Debug for Routers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routers").field("known", &*self.known()).finish_non_exhaustive()
    }
}
