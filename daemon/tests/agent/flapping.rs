//! Links that come and go without end cause requests and reconciles per second, not per event.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netlink::LinkChange;
use vcn::Mtu;

use crate::node::{Agent, Node, SLOW_RESYNC, name, wait_for};
use crate::running::at_once;

/// Long enough to tell a rate.
const LONG: Duration = Duration::from_secs(8);

/// What it cost that a link flapped for so long: questions for the list of VNICs, and passes.
struct Cost {
    took: Duration,
    flaps: u32,
    questions: usize,
    passes: u32,
}

/// Sets it at its end: a wait that fails, too, must end the thread that its scope joins.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Changes a link 25 times a second, for so long and until it was heard.
fn flap(node: &Node, agent: &Agent, link: &str, heard: impl Fn(&Cost) -> bool) -> Cost {
    let (requests, passed, begun) = (node.metadata.list_requests(), node.passes("kernel"), Instant::now());
    let cost = |flaps| {
        let (questions, passes) = (node.metadata.list_requests() - requests, node.passes("kernel") - passed);
        Cost { took: begun.elapsed(), flaps, questions, passes }
    };
    let over = AtomicBool::new(false);
    let flaps = thread::scope(|scope| {
        let flapping = scope.spawn(|| {
            let mut flaps = 0u32;
            while !over.load(Ordering::Relaxed) {
                let mtu = LinkChange::Mtu(Mtu(1400 + flaps % 2));
                node.on(|socket| socket.change_link_named(&name(link), &[mtu]).unwrap());
                flaps += 1;
                thread::sleep(Duration::from_millis(40));
            }
            flaps
        });
        let end = SetAtEnd(&over);
        wait_for("the time to pass", || begun.elapsed() >= LONG && heard(&cost(0)), || agent.log());
        drop(end);
        flapping.join().unwrap()
    });
    cost(flaps)
}

/// At most `per_second`, and some when it begins.
fn assert_at_most(what: &str, counted: u32, per_second: f64, cost: &Cost) {
    let most = 10.0 + per_second * cost.took.as_secs_f64();
    assert!(f64::from(counted) <= most, "{counted} {what} in {:?} for {} flaps", cost.took, cost.flaps);
}

/// A link that is not a VNIC's causes no question. A link that may be a VNIC's causes a question in two seconds.
#[test]
fn flapping_link_causes_few_questions_and_reconciles() {
    let of_a_pod = "ip link set veth0 address 0a:58:0a:00:00:09";
    at_once([("veth0", of_a_pod, 0.0), ("ens9", "", 0.5)], |(link, before, questions)| {
        let node = Node::with_pods();
        node.plug(link, 77);
        node.sh(before);
        let agent = node.ready_agent(&SLOW_RESYNC);
        let cost = flap(&node, &agent, link, |cost| if questions > 0.0 { cost.questions > 0 } else { cost.passes > 0 });
        // The agent raised a VNIC's link when it started: it polls for that some more.
        assert_at_most("questions", u32::try_from(cost.questions).unwrap(), questions, &cost);
        assert_at_most("reconciles", cost.passes, 2.5, &cost);
    });
}
