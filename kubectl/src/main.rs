//! Entry point: runs, prints the error chain, exits.

use std::process::ExitCode;

use kubectl_oke_node::run::{Exit, run};
use resident::logging::chain;
use vcn::printable;

fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("kubectl oke-node: {}", printable(&chain(error.as_ref())));
            Exit::Problem.into()
        }
    }
}
