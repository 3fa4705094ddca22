//! The tables: what was measured, as ratios where a ratio is what was promised.

use std::fmt::Write as _;

use super::agent::{Footprint, Interval};
use super::args::Args;
use super::burst::Burst;
use super::contender::Kind;
use super::race::{SingleTimes, Times};
use super::sample::Sample;
use super::verb::size_of;

/// The largest plugin that we ship, in bytes.
const PLUGIN_BYTES: u64 = 2 << 20;

/// The most resident memory of an idle agent, and of one with a full node of pods, in KiB.
const IDLE_KIB: u64 = 12 << 10;
const LOADED_KIB: u64 = 16 << 10;

/// The most of a node with eight GPUs: resident memory in KiB, and the share of a processor.
const ACCELERATED_KIB: u64 = 16 << 10;
const ACCELERATED_SHARE: f64 = 0.002;

/// Everything that was found out.
pub(crate) struct Report<'a> {
    pub(crate) args: &'a Args,
    pub(crate) header: String,
    pub(crate) singles: Vec<SingleTimes>,
    pub(crate) bursts: Vec<Burst>,
    pub(crate) agent: Footprint,
}

impl Report<'_> {
    pub(crate) fn to_markdown(&self) -> anyhow::Result<String> {
        let mut text = format!("{}\n", self.header);
        self.times(&mut text)?;
        agent_table(&mut text, &self.agent)?;
        self.targets(&mut text)?;
        Ok(text)
    }

    fn times(&self, text: &mut String) -> anyhow::Result<()> {
        singles_table(text, "single", &self.singles)?;
        writeln!(
            text,
            "\n| burst of {}, in ms | all ADDs, p50 | an ADD's end, p50 | p99 | CPU of all | all DELs, p50 |\n\
             |---|---|---|---|---|---|",
            self.args.pods
        )?;
        for Burst { name, whole, each, cpu, whole_del, .. } in &self.bursts {
            let (all, cpu, del) = (whole.median(), cpu.median(), whole_del.median());
            let (p50, p99) = (each.median(), each.percentile(99));
            writeln!(text, "| {name} | {all:.0} | {p50:.0} | {p99:.0} | {cpu:.0} | {del:.0} |")?;
        }
        Ok(())
    }

    fn targets(&self, text: &mut String) -> anyhow::Result<()> {
        let single = |kind| self.singles.iter().find(|single| single.kind == kind);
        let burst = |kind| self.bursts.iter().find(|burst| burst.kind == kind);
        writeln!(text, "\n| promise | measured | target | |\n|---|---|---|---|")?;
        if let (Some(ours), Some(reference), Some(floor)) =
            (single(Kind::Ours), single(Kind::Reference), single(Kind::Floor))
        {
            line(text, "ADD, wall, of ptp + host-local", ratio(&ours.add.wall, &reference.add.wall), 0.25)?;
            line(text, "ADD, wall, of the bare netlink calls", ratio(&ours.add.wall, &floor.add.wall), 1.15)?;
            if let Some(lean) = single(Kind::LeanFloor) {
                let measured = ratio(&ours.add.cpu, &lean.add.cpu);
                line(text, "ADD, CPU, of these linked as the plugin is", measured, 1.4)?;
            }
            line(text, "DEL, wall, of ptp + host-local", ratio(&ours.del.wall, &reference.del.wall), 0.1)?;
            line(text, "DEL, CPU, of ptp + host-local", ratio(&ours.del.cpu, &reference.del.cpu), 0.3)?;
        }
        if let (Some(ours), Some(reference)) = (burst(Kind::Ours), burst(Kind::Reference)) {
            line(text, "burst, whole, of ptp + host-local", ratio(&ours.whole, &reference.whole), 0.2)?;
            line(text, "burst, p99 / p50 of an ADD's end", ours.each.percentile(99) / ours.each.median(), 4.0)?;
        }
        let size = size_of(&self.args.program("vcn-native")?)?;
        writeln!(text, "| plugin binary | {size} bytes | ≤ {PLUGIN_BYTES} | {} |", verdict(size <= PLUGIN_BYTES))?;
        agent_targets(text, &self.agent)
    }
}

/// What single verbs took.
pub(crate) fn singles_table(text: &mut String, title: &str, singles: &[SingleTimes]) -> anyhow::Result<()> {
    writeln!(text, "| {title}, in ms | wall p50 | p90 | CPU p50 | p90 |\n|---|---|---|---|---|")?;
    for single in singles {
        for (verb, Times { wall, cpu }) in [("ADD", &single.add), ("DEL", &single.del)] {
            if !wall.is_empty() {
                let verb = if single.kind == Kind::Empty { "" } else { verb };
                let [w50, w90, c50, c90] = [(wall, 50), (wall, 90), (cpu, 50), (cpu, 90)].map(|(s, p)| s.percentile(p));
                writeln!(text, "| {} {verb} | {w50:.2} | {w90:.2} | {c50:.2} | {c90:.2} |", single.name)?;
            }
        }
    }
    Ok(())
}

/// What the agent takes, stretch by stretch.
fn agent_table(text: &mut String, footprint: &Footprint) -> anyhow::Result<()> {
    let Footprint { pods, over, idle, adds, loaded, dels } = footprint;
    writeln!(
        text,
        "\n| agent | wall | CPU, with what comes after | CPU / wall | resident at the end | at most |\n|---|---|---|---|---|---|"
    )?;
    let seconds = over.as_secs();
    for (what, stretch) in [
        (format!("{seconds} s idle, no pods"), idle),
        (format!("{pods} ADDs at once"), adds),
        (format!("{seconds} s idle, {pods} pods"), loaded),
        (format!("{pods} DELs at once"), dels),
    ] {
        let Interval { wall, cpu, resident, peak } = stretch;
        let share = stretch.share() * 100.0;
        writeln!(
            text,
            "| {what} | {:.2} s | {:.1} ms | {share:.3} % | {resident} KiB | {peak} KiB |",
            wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e3
        )?;
    }
    Ok(())
}

/// What was promised of the agent.
fn agent_targets(text: &mut String, footprint: &Footprint) -> anyhow::Result<()> {
    let Footprint { pods, idle, adds, loaded, .. } = footprint;
    for (what, kib, most) in [
        ("agent, idle".to_owned(), idle.peak, IDLE_KIB),
        (format!("agent, at {pods} pods"), loaded.peak, LOADED_KIB),
        (format!("agent, through a burst of {pods} ADDs"), adds.peak, LOADED_KIB),
    ] {
        writeln!(text, "| {what} | {kib} KiB | ≤ {most} | {} |", verdict(kib <= most))?;
    }
    Ok(())
}

/// The agent with the files of BM.GPU.H100.8.
pub(crate) fn accelerated_table(idle: Interval) -> anyhow::Result<String> {
    let mut text =
        "\n| agent with 8 GPUs and 16 RDMA ports, idle | measured | target | |\n|---|---|---|---|\n".to_owned();
    let (share, peak) = (idle.share(), idle.peak);
    let is_small = peak <= ACCELERATED_KIB;
    writeln!(text, "| resident memory, at most | {peak} KiB | ≤ {ACCELERATED_KIB} | {} |", verdict(is_small))?;
    let (measured, target) = (share * 100.0, ACCELERATED_SHARE * 100.0);
    let is_quiet = share <= ACCELERATED_SHARE;
    writeln!(text, "| of a processor | {measured:.3} % | ≤ {target} % | {} |", verdict(is_quiet))?;
    Ok(text)
}

pub(crate) fn line(text: &mut String, what: &str, measured: f64, target: f64) -> anyhow::Result<()> {
    Ok(writeln!(text, "| {what} | {measured:.3} × | ≤ {target} × | {} |", verdict(measured <= target))?)
}

pub(crate) fn ratio(ours: &Sample, others: &Sample) -> f64 {
    ours.median() / others.median()
}

const fn verdict(reached: bool) -> &'static str {
    if reached { "pass" } else { "**MISS**" }
}
