//! `house-lint [ROOT]` runs the house checks; `house-lint words [PATH]` records the counts of words to avoid, or lists those
//! below a path.

use std::path::Path;
use std::process::ExitCode;

use house_lint::{check, words};

const USAGE: &str = "usage: house-lint [ROOT] | house-lint words [PATH]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["words", below @ ..] if below.len() < 2 => words::run(Path::new("."), below.first().copied()).map(|()| true),
        [] => check(Path::new(".")),
        [root] if !root.starts_with('-') => check(Path::new(root)),
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
