//! Single verbs: every contender has its turn in every round, so that whatever disturbs the machine disturbs all alike.

use std::time::Duration;

use super::args::Args;
use super::contender::{Contender, Kind};
use super::pod::Pod;
use super::sample::Sample;

/// What one contender took, over all rounds.
#[derive(Debug)]
pub(crate) struct SingleTimes {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) add: Times,
    pub(crate) del: Times,
}

/// Wall and CPU time of one verb.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) wall: Sample,
    pub(crate) cpu: Sample,
}

/// Races ADDs and DELs. Each contender has one pod of its own, attached and detached by turns: making and removing
/// namespaces would keep the kernel busy meanwhile.
pub(crate) fn run(args: &Args, contenders: &[Contender]) -> anyhow::Result<Vec<SingleTimes>> {
    let lane = |contender| Ok(Lane { contender, pod: Pod::new(String::new())?, single: SingleTimes::of(contender) });
    let mut lanes = contenders.iter().map(lane).collect::<anyhow::Result<Vec<_>>>()?;
    let mut dice = Dice::new();
    for round in 0..args.warm_up + args.rounds {
        dice.shuffle(&mut lanes);
        for Lane { contender, pod, single } in &mut lanes {
            // As long as a container runtime's.
            pod.id = format!("{:0>64}", format!("{}{round}", contender.label));
            for verb in contender.verbs {
                dice.wait();
                let took = contender.run(verb, pod)?;
                let times = if *verb == "DEL" { &mut single.del } else { &mut single.add };
                if round >= args.warm_up {
                    times.wall.push(took.wall);
                    times.cpu.push(took.cpu);
                }
                if contender.is_plugin() && *verb == "ADD" {
                    took.added()?;
                }
            }
        }
    }
    let mut singles: Vec<SingleTimes> = lanes.into_iter().map(|lane| lane.single).collect();
    singles.sort_by_key(|single| contenders.iter().position(|contender| contender.name == single.name));
    Ok(singles)
}

/// A contender with its pod and its times.
struct Lane<'a> {
    contender: &'a Contender,
    pod: Pod,
    single: SingleTimes,
}

impl SingleTimes {
    fn of(contender: &Contender) -> Self {
        let (add, del) = Default::default();
        Self { kind: contender.kind, name: contender.name, add, del }
    }
}

/// Chance, the same in every run.
struct Dice(u64);

impl Dice {
    const fn new() -> Self {
        Self(1)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        // Knuth's MMIX; its high bits are the random ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) % sides
    }

    /// Waits for up to two periods of a slow timer. A DEL ends with a timer interrupt, because the kernel waits for all
    /// processors before it frees a link. So whatever comes next would start at the same point of the timer's period in every
    /// round, each contender at its own. The measurement would depend on that point.
    fn wait(&mut self) {
        std::thread::sleep(Duration::from_micros(self.roll(8_000)));
    }

    /// Another order, so that no contender always follows the one that leaves the caches coldest.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, usize::try_from(self.roll(end as u64 + 1)).unwrap_or(end));
        }
    }
}
