//! `house-lint [ROOT]` runs the house checks. `house-lint --set-budgets [FOLDER]...` measures packages and writes their budgets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: house-lint [ROOT] | --set-budgets [FOLDER]...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.as_slice() {
        [] => house_lint::check(Path::new(".")),
        [flag, folders @ ..] if flag == "--set-budgets" => {
            let folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
            house_lint::set_budgets(Path::new("."), &folders).map(|()| true)
        }
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
