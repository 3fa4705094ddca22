//! The pod path against the reference plugins, in one run on one machine: ratios mean something there, milliseconds do
//! not. Nothing is left behind, and the machine's own network is not touched.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;

mod accelerated;
mod agent;
mod args;
mod burst;
mod contender;
mod controller;
mod extra;
mod listener;
mod machine;
mod node;
mod pod;
mod race;
mod report;
mod sample;
mod verb;

pub use args::Args;
use contender::Contender;
use node::Node;
use report::Report;

/// Runs every measurement and prints what was found.
///
/// # Errors
/// When any verb of any contender fails, or a pod that was made cannot be reached: then nothing was measured.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let node = Node::new().context("make a node in namespaces")?;
    // Everything below is on a thread in the host's namespace, and so is every process it starts.
    node.host.run(|| measure(args, &node))?
}

fn measure(args: &Args, node: &Node) -> anyhow::Result<()> {
    let accelerated = || {
        let measured = accelerated::measure(&args.bin_dir, Duration::from_secs(args.idle_seconds));
        report::accelerated_table(measured.context("measure the agent on a node with GPUs")?)
    };
    if args.accelerated_only {
        print!("{}", accelerated()?);
        return Ok(());
    }
    let contenders = Contender::all(args, node.state.path())?;
    for contender in &contenders {
        contender.prove().with_context(|| format!("prove that {} works before timing it", contender.name))?;
    }
    let mut header = machine::describe(args, &contenders)?;
    writeln!(header, "- single verbs: {}", machine::schedule_first())?;
    let singles = race::run(args, &contenders).context("race single verbs")?;
    writeln!(header, "- bursts: {}", machine::schedule_ordinarily())?;
    let bursts = burst::run(args, &contenders).context("race bursts")?;
    writeln!(header, "- extra interfaces: {}", machine::schedule_first())?;
    let extra = extra::run(args, node.state.path()).context("race extra interfaces")?;
    machine::schedule_ordinarily();
    let agent = agent::measure(&args.bin_dir, args.agent_pods, Duration::from_secs(args.idle_seconds));
    let agent = agent.context("measure the agent")?;
    let accelerated = accelerated()?;
    writeln!(header, "- load average afterwards: {}", machine::load()?)?;
    print!("{}{extra}{accelerated}", Report { args, header, singles, bursts, agent }.to_markdown()?);
    Ok(())
}
