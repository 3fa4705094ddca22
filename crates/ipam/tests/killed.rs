//! Writers that are killed in the middle of it. A process of its own: what is forked here would hold the locks that other
//! tests have.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

#[expect(dead_code, reason = "the other tests of the store do more with it")]
#[path = "store/node.rs"]
mod node;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ipam::{BootTime, Error, Pools, Store};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use crate::node::{boot, pools, request, reserve};

const ROUNDS: u64 = 150;
const NAMES: [&str; 3] = ["x", "y", "z"];
const NOW: BootTime = BootTime(1_000);

/// Adds and deletes until it is killed.
#[expect(unsafe_code, reason = "fork: another process, so that SIGKILL stops it at whatever it does")]
fn writer(dir: &Path, pools: &Pools) -> Pid {
    let store = Store::new(dir, boot());
    // SAFETY: the child runs on this thread alone and takes no lock but the allocator's, which libc hands over whole.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => loop {
            for id in NAMES {
                let key = request(id).key;
                let _ = store.update_for(&key, |held| held.reserve(pools, request(id), NOW));
                let _ = store.commit(&key);
            }
            for key in NAMES.map(|id| request(id).key) {
                let _ = store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, NOW)));
            }
        },
    }
}

#[test]
fn del_after_sigkill_at_any_moment_restores_the_records() {
    let (dir, pools) = (tempfile::tempdir_in("/dev/shm").unwrap(), pools("10.9.1.0/29"));
    let store = Store::new(dir.path(), boot());
    reserve(&store, &pools, "resident").unwrap();
    store.commit(&request("resident").key).unwrap();
    let resident = store.read().unwrap().allocations;
    let mut met = BTreeSet::new();
    for round in 0..ROUNDS {
        let record = || fs::metadata(dir.path().join("allocations.json")).unwrap().ino();
        let before = record();
        let child = writer(dir.path(), &pools);
        // In half of the rounds it is under way: on a busy machine it may be killed before it has begun, in all the others.
        let end = Instant::now() + Duration::from_secs(60);
        while round % 4 < 2 && record() == before {
            assert!(Instant::now() < end, "it writes nothing");
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(500 + round * 37 % 2_000));
        kill(child, Signal::SIGKILL).unwrap();
        waitpid(child, None).unwrap();
        // Whatever was under way, what there is can be read, and nothing is held twice: that would be damage.
        let all = store.read().unwrap();
        met.insert(all.allocations.len());
        // Half of the rounds leave it to the next ADDs, the others send the DELs that a runtime would.
        if round % 2 == 0 {
            continue;
        }
        for key in NAMES.map(|id| request(id).key) {
            store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, NOW))).unwrap();
        }
        let all = store.read().unwrap();
        assert_eq!(all.allocations, resident, "round {round}");
        let folder = dir.path().join("allocations");
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files.len(), 1, "round {round}: {files:?}");
        assert!(!dir.path().join("allocations.json.new").exists(), "round {round}");
        // No other pod holds anything: all others of the eight addresses can be had.
        let given = (0..7).map(|id| reserve(&store, &pools, &format!("all{id}")).map(drop));
        given.collect::<Result<(), _>>().unwrap();
        store
            .update(|held| {
                (0..7).for_each(|id| drop(held.release(&request(&format!("all{id}")).key, NOW)));
                Ok::<_, Error>(())
            })
            .unwrap();
    }
    assert!(met.len() > 1, "it was killed at different moments: {met:?}");
}
