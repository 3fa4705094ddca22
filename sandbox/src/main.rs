//! `oke-sandbox`: an emulated VCN from the command line.

mod args;
mod cluster;
mod demo;
mod up;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Subcommand};

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
