//! Entry point: run, say what went wrong.

use std::process::ExitCode;

use oke_node_agent::run;
use vcn::printable;

fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("oke-node-agent: {}", printable(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
