//! Entry point: parse, run, say what went wrong.

use std::process::ExitCode;

use clap::Parser;
use oke_node_agent::{Args, run};

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oke-node-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}
