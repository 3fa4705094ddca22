//! Entry point: runs, prints the error chain, exits.

use std::process::ExitCode;

use oke_node_controller::run;
use resident::logging::chain;
use vcn::printable;

fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("oke-node-controller: {}", printable(&chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}
