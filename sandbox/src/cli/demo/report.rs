//! The demo's table on standard output. Printed line by line, so that a step that hangs is seen.

use std::time::Duration;

const WHAT: usize = 46;
const RESULT: usize = 44;

pub(crate) fn title(text: &str) {
    println!("\n{text}");
}

pub(crate) fn line(text: &str) {
    println!("  {text}");
}

pub(crate) fn row(what: &str, result: &str, took: Duration) {
    let took = if took.is_zero() { String::new() } else { format!("{:>8.1} ms", took.as_secs_f64() * 1e3) };
    println!("  {what:<WHAT$}  {result:<RESULT$} {took}");
}

pub(crate) fn end(failures: usize) {
    match failures {
        0 => println!("\nEverything works, and nothing is left behind."),
        n => println!("\n{n} proof(s) FAILED; see above."),
    }
}
