//! `oke-sandbox`: an emulated VCN from the command line.

mod cli;

use std::process::ExitCode;

use clap::Parser;

use cli::args::{Args, Subcommand};
use cli::{cluster, demo, up};

fn main() -> ExitCode {
    let outcome = match Args::parse().subcommand {
        Subcommand::Up(options) => up::run(options),
        Subcommand::Cluster(options) => cluster::run(&options),
        Subcommand::Demo(options) => demo::run(&options),
        Subcommand::Down => demo::down(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("oke-sandbox: {error:#}");
        ExitCode::FAILURE
    })
}
