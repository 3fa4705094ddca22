//! Firewalls that reject what is forwarded: Oracle Linux's own does by default, and pods' packets are forwarded. Rules are
//! read on a thread of their own: a node may have tens of thousands, and repairs do not wait for them.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use datapath::host::HostNetwork;
use netlink::nft::{Barrier, LinkMatch, Socket, Way};
use resident::logging::chain;
use vcn::HOST_LINK_PREFIX;

use crate::report::condition::{Condition, Reason};

/// How long a pass waits for what is found, so that it tells what is so now; on most nodes it takes a millisecond or two.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long whoever looks once does, because somebody asked for it. Not for a preview of the agent's: repairs wait for that.
pub(super) const PATIENCE_OF_A_PERSON: Duration = Duration::from_secs(5);

/// How many times as long as a look took the next one is put off.
const REST: u32 = 20;

/// What was found, and the look that is under way.
#[derive(Debug)]
pub(super) struct Firewalls {
    patience: Duration,
    found: Vec<Condition>,
    looking: Option<Look>,
    /// Not before.
    next: Option<Instant>,
    /// For which ways that holds.
    ways: Vec<Way>,
}

#[derive(Debug)]
struct Look {
    answer: Receiver<Answer>,
    ways: Vec<Way>,
}

/// What was found, and how long it took.
type Answer = (Found, Duration);

#[derive(Debug)]
enum Found {
    Barriers(Vec<Barrier>),
    /// The rules changed while they were read, each time.
    Changing,
    /// Why they cannot be read.
    Nothing(String),
}

impl Default for Firewalls {
    fn default() -> Self {
        Self { patience: PATIENCE, found: Vec::new(), looking: None, next: None, ways: Vec::new() }
    }
}

impl Firewalls {
    /// From now on.
    pub(super) const fn wait_as_a_person_does(&mut self) {
        self.patience = PATIENCE_OF_A_PERSON;
    }

    /// What is known now.
    pub(super) fn look(&mut self, network: &HostNetwork) -> Vec<Condition> {
        // Nothing is forwarded for pods that are somebody else's.
        if network.pods.is_none() || network.vnics.is_empty() {
            *self = Self { patience: self.patience, ..Self::default() };
            return Vec::new();
        }
        let ways = ways(network);
        if self.looking.is_none() {
            if self.ways == ways && self.next.is_some_and(|next| Instant::now() < next) {
                return self.found.clone();
            }
            self.looking = begin(ways);
        }
        self.take();
        self.found.clone()
    }

    /// Has one under way; it ends when what is returned is dropped.
    #[cfg(test)]
    pub(super) fn look_that_takes_for_ever(&mut self) -> impl Sized + use<> {
        let (tell, answer) = sync_channel(1);
        self.looking = Some(Look { answer, ways: Vec::new() });
        tell
    }

    fn take(&mut self) {
        let Some(look) = self.looking.take() else { return };
        let (found, took) = match look.answer.recv_timeout(self.patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.looking = Some(look);
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        self.next = Instant::now().checked_add(took.saturating_mul(REST));
        self.ways = look.ways;
        match found {
            Found::Barriers(barriers) => self.found = barriers.iter().map(condition).collect(),
            // What was found is as good as before, and looked at again.
            Found::Changing => {}
            Found::Nothing(why) => {
                self.found = vec![Condition::degraded(Reason::HostNetworkFailed, why).about("firewalls")];
            }
        }
    }
}

/// The thread is in the network namespace of the one that asks, as its children are.
fn begin(ways: Vec<Way>) -> Option<Look> {
    let (tell, answer) = sync_channel(1);
    let asked = ways.clone();
    let look = move || {
        let begun = Instant::now();
        let found = match barriers(&asked) {
            Ok(barriers) => Found::Barriers(barriers),
            Err(error) if error.is_unsupported() => Found::Barriers(Vec::new()),
            Err(error) if error.is_retryable() => Found::Changing,
            Err(error) => Found::Nothing(chain(&error)),
        };
        // Whoever asked may have gone.
        let _ = tell.send((found, begun.elapsed()));
    };
    // Without a thread it is looked at with the next pass.
    thread::Builder::new().name("firewalls".into()).stack_size(1 << 20).spawn(look).ok()?;
    Some(Look { answer, ways })
}

fn ways(network: &HostNetwork) -> Vec<Way> {
    let pods = || LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned());
    let both = |link: &vcn::IfName| {
        let link = || LinkMatch::Exact(link.clone());
        [Way { from: pods(), to: link() }, Way { from: link(), to: pods() }]
    };
    network.vnics.iter().flat_map(|vnic| both(vnic.placement.link())).collect()
}

fn barriers(ways: &[Way]) -> Result<Vec<Barrier>, netlink::Error> {
    let mut found = Socket::open()?.barriers(ways)?;
    found.sort_by_key(ToString::to_string);
    Ok(found)
}

fn condition(barrier: &Barrier) -> Condition {
    let Barrier { family, table, chain, how } = barrier;
    let accept = match (*family, table.as_str()) {
        ("inet", "firewalld") => format!(
            "firewall-cmd --permanent --zone=trusted --add-interface={HOST_LINK_PREFIX}+ and firewall-cmd --reload"
        ),
        ("inet", _) => format!(
            "nft insert rule inet {table} {chain} iifname \"{HOST_LINK_PREFIX}*\" accept, and the same with oifname"
        ),
        (family, _) => {
            let command = if family == "ip6" { "ip6tables" } else { "iptables" };
            let command = format!("{command} -t {table}");
            let command = command.strip_suffix(" -t filter").unwrap_or(&command);
            format!(
                "{command} -I FORWARD -i {HOST_LINK_PREFIX}+ -j ACCEPT and {command} -I FORWARD -o {HOST_LINK_PREFIX}+ -j \
                 ACCEPT, and save them"
            )
        }
    };
    let message = format!(
        "the firewall stops what is forwarded from and to pods, unless one of its rules before accepts it (chain {chain} of \
         table {family} {table}: {how}). Make it accept pods' links: {accept}; or stop the firewall service"
    );
    Condition::degraded(Reason::ForwardingRejected, message).about(barrier)
}

#[cfg(test)]
mod tests {
    use netlink::nft::LinkMatch;

    use super::*;

    fn barrier() -> Barrier {
        Barrier { family: "ip", table: "filter".into(), chain: "FORWARD".into(), how: "reject" }
    }

    fn some_ways() -> Vec<Way> {
        vec![Way { from: LinkMatch::Prefix("vcn".into()), to: LinkMatch::Exact("ens5".parse().unwrap()) }]
    }

    fn answered(firewalls: &mut Firewalls, found: Found) {
        let (tell, answer) = sync_channel(1);
        tell.send((found, Duration::ZERO)).unwrap();
        firewalls.looking = Some(Look { answer, ways: some_ways() });
        firewalls.take();
    }

    #[test]
    fn a_look_that_was_interrupted_leaves_what_was_found_before() {
        let mut firewalls = Firewalls::default();
        answered(&mut firewalls, Found::Barriers(vec![barrier()]));
        assert_eq!(firewalls.found, [condition(&barrier())]);
        answered(&mut firewalls, Found::Changing);
        assert_eq!(firewalls.found, [condition(&barrier())]);
        answered(&mut firewalls, Found::Barriers(Vec::new()));
        assert_eq!(firewalls.found, []);
    }

    #[test]
    fn a_look_that_takes_long_keeps_nobody_waiting_and_its_answer_is_taken_later() {
        let mut firewalls = Firewalls { found: vec![condition(&barrier())], ..Firewalls::default() };
        let (tell, answer) = sync_channel(1);
        firewalls.looking = Some(Look { answer, ways: some_ways() });
        firewalls.take();
        assert_eq!((firewalls.found.len(), firewalls.looking.is_some()), (1, true));
        tell.send((Found::Barriers(Vec::new()), Duration::from_secs(60))).unwrap();
        firewalls.take();
        assert_eq!((firewalls.found.len(), firewalls.looking.is_some()), (0, false));
        // The next one is put off by far more than it took.
        let rest = firewalls.next.unwrap().saturating_duration_since(Instant::now());
        assert!(rest > Duration::from_secs(60 * 19), "{rest:?}");
    }
}
