//! `oke-cni-installer`: exit 0 when the node is as decided, 1 when something failed, 64 when called wrongly.

use std::process::ExitCode;

fn main() -> ExitCode {
    installer::run(std::env::args_os())
}
