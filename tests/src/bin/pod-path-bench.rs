//! Races the pod path against the reference plugins: `make bench`.

use clap::Parser;
use tests::bench::{self, Args};

fn main() -> anyhow::Result<()> {
    bench::run(&Args::parse())
}
