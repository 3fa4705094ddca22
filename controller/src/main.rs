//! Entry point: run, say what went wrong.

use std::process::ExitCode;

use oke_node_controller::run;
use resident::logging::chain;

fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("oke-node-controller: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
