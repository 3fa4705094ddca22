//! Entry point: runs, prints the error chain, exits.

use std::process::ExitCode;

use kubectl_oke_node::answer::Exit;
use kubectl_oke_node::run::{run, words};

fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("kubectl oke-node: {}", words(&error));
            Exit::Problem.into()
        }
    }
}
