//! The pod path against the reference plugins, in one run on one machine: ratios mean something there, milliseconds do
//! not. Nothing is left behind, and the machine's own network is not touched.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;

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

use agent::Footprint;
pub use args::Args;
use contender::Contender;
use machine::Scheduling;
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
    if args.only_agent {
        let agent = measure_agent(args)?.context("there is no --agent")?;
        let mut text = String::new();
        report::agent_table(&mut text, &agent)?;
        writeln!(text, "\n| promise | measured | target | |\n|---|---|---|---|")?;
        report::agent_targets(&mut text, &agent)?;
        print!("{text}");
        return Ok(());
    }
    if args.only_extra {
        Scheduling::real_time();
        print!("{}", extra::run(args, node.state.path())?);
        return Ok(());
    }
    let contenders = Contender::all(args, node.state.path())?;
    for contender in &contenders {
        contender.prove().with_context(|| format!("prove that {} works before timing it", contender.name))?;
    }
    let mut header = machine::describe(args, &contenders)?;
    let scheduling = Scheduling::real_time();
    writeln!(header, "- single verbs: {scheduling}")?;
    let singles = race::run(args, &contenders).context("race single verbs")?;
    let scheduling = Scheduling::ordinary();
    writeln!(header, "- bursts: {scheduling}")?;
    let bursts = burst::run(args, &contenders).context("race bursts")?;
    let scheduling = Scheduling::real_time();
    writeln!(header, "- extra interfaces: {scheduling}")?;
    let extra = extra::run(args, node.state.path()).context("race extra interfaces")?;
    Scheduling::ordinary();
    let agent = measure_agent(args)?;
    writeln!(header, "- load average afterwards: {}", machine::load()?)?;
    print!("{}{extra}", Report { args, header, singles, bursts, agent }.to_markdown()?);
    Ok(())
}

fn measure_agent(args: &Args) -> anyhow::Result<Option<Footprint>> {
    let measured = args
        .agent
        .as_deref()
        .map(|agent| agent::measure(agent, args.agent_pods, Duration::from_secs(args.idle_seconds)));
    measured.transpose().context("measure the agent")
}
