//! Bursts: the ADDs of a whole node's pods, all at once, as after a reboot or a drain.

use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::args::Args;
use super::contender::{Contender, Kind};
use super::pod::Pod;
use super::sample::Sample;
use super::verb::Run;

/// What one contender's bursts took.
#[derive(Debug)]
pub(crate) struct Burst {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    /// From the start until the last ADD's end.
    pub(crate) whole: Sample,
    /// From the start until each pod's ADD ended: of all bursts.
    pub(crate) each: Sample,
    /// CPU time of all ADDs of a burst.
    pub(crate) cpu: Sample,
    /// From the start of all DELs until the last one's end.
    pub(crate) whole_del: Sample,
}

/// Races bursts of the plugins, by turns.
pub(crate) fn run(args: &Args, contenders: &[Contender]) -> anyhow::Result<Vec<Burst>> {
    let mut pods = (0..args.pods).map(|_| Pod::new(String::new())).collect::<anyhow::Result<Vec<_>>>()?;
    let plugins: Vec<&Contender> = contenders.iter().filter(|contender| contender.is_plugin()).collect();
    let new = |plugin: &&Contender| {
        let (whole, each, cpu, whole_del) = Default::default();
        Burst { kind: plugin.kind, name: plugin.name, whole, each, cpu, whole_del }
    };
    let mut bursts: Vec<Burst> = plugins.iter().map(new).collect();
    // The first of each is to warm up.
    for round in 0..=args.bursts {
        for (plugin, burst) in plugins.iter().zip(&mut bursts) {
            for (number, pod) in pods.iter_mut().enumerate() {
                pod.id = format!("{:0>64}", format!("{}burst{round}pod{number}", plugin.label));
            }
            let added = all_at_once(&pods, |pod| plugin.add(pod))?;
            let deleted = all_at_once(&pods, |pod| plugin.del(pod))?;
            if round > 0 {
                burst.whole.push(last(&added));
                burst.whole_del.push(last(&deleted));
                burst.cpu.push(added.iter().map(|(_, run)| run.cpu).sum());
                added.iter().for_each(|(end, _)| burst.each.push(*end));
            }
            for (_, run) in added {
                run.added()?;
            }
        }
    }
    Ok(bursts)
}

/// Does something to all pods, each on a thread of its own. Returns when each was done: how long after the first of the
/// threads, whichever it was, set out. (The one that starts them is itself only one of many that want a processor.)
fn all_at_once(pods: &[Pod], act: impl Fn(&Pod) -> anyhow::Result<Run> + Sync) -> anyhow::Result<Vec<(Duration, Run)>> {
    let ready = Barrier::new(pods.len());
    let timed = |pod| {
        ready.wait();
        let began = Instant::now();
        act(pod).map(|run| (began, Instant::now(), run))
    };
    let runs = std::thread::scope(|scope| {
        let threads: Vec<_> = pods.iter().map(|pod| scope.spawn(|| timed(pod))).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        threads.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let first = runs.iter().map(|(began, ..)| *began).min();
    let since_first = |end: Instant| first.map(|first| end.duration_since(first)).unwrap_or_default();
    Ok(runs.into_iter().map(|(_, end, run)| (since_first(end), run)).collect())
}

fn last(runs: &[(Duration, Run)]) -> Duration {
    runs.iter().map(|(end, _)| *end).max().unwrap_or_default()
}
