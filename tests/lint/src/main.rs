//! `house-lint [ROOT]` runs the house checks.

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: house-lint [ROOT]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.as_slice() {
        [] => house_lint::check(Path::new(".")),
        [root] if !root.starts_with('-') => house_lint::check(Path::new(root)),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("house-lint: {error:#}");
            ExitCode::from(2)
        }
    }
}
