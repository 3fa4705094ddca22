//! `oke-sandbox`: an emulated VCN from the command line.

mod cli;

use std::process::ExitCode;

use clap::Parser;

use cli::args::{Args, Subcommand};
use cli::{cluster, demo, fault};

fn main() -> ExitCode {
    let outcome = match Args::parse().subcommand {
        Subcommand::Cluster(options) => cluster::run(&options),
        Subcommand::Demo(options) => demo::run(&options),
        Subcommand::Fault(options) => fault::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("oke-sandbox: {error:#}");
        ExitCode::FAILURE
    })
}
