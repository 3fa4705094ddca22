//! The tables of docs/signals.md, docs/privileges.md and docs/operator.md.

use std::fmt::Write as _;

use health::collector::Signal;
use health::collectors::{self, KINDS};
use health::fleet::controller_signal_healthy;
use health::reason::Reason;
use health::rules::Rules;

/// Signal, source, rules, reason, remedy.
pub fn signals() -> String {
    let rules = Rules::shipped().rules;
    let mut text = String::from("| signal | source | healthy | why it matters | what to do |\n|---|---|---|---|---|\n");
    for signal in collectors::all_signals() {
        let Signal { name, unit, source, why, remedy } = signal;
        let of_it = rules.iter().filter(|rule| rule.signal == *name);
        let bounds = of_it.map(|rule| {
            let samples = match (rule.samples.bad, rule.samples.of) {
                (1, 1) => String::new(),
                (bad, of) => format!(", {bad} of {of} samples"),
            };
            let shapes = if rule.shapes.is_empty() { String::new() } else { format!(" on {}", rule.shapes.join(", ")) };
            let memory = rule.memory.to_string();
            let sizes = if memory.is_empty() { memory } else { format!(" with {memory}") };
            format!("{}{shapes}{sizes} (`{}`, {}{samples})", rule.bound_text(*unit), rule.name, rule.severity)
        });
        let bounds = bounds.collect::<Vec<_>>().join("; ");
        let bounds = match &*bounds {
            "" => controller_signal_healthy(name).unwrap_or("information"),
            bounds => bounds,
        };
        let _ = writeln!(text, "| `{name}` | {source} | {bounds} | {why} | {remedy} |");
    }
    text
}

/// Collector, interval, what it needs.
pub fn privileges() -> String {
    let mut text = String::from("| collector | every | reads | needs |\n|---|---|---|---|\n");
    for kind in KINDS {
        let mut sources: Vec<&str> = kind.signals.iter().map(|signal| signal.source).collect();
        sources.dedup();
        let (name, every) = (kind.name, kind.every.as_secs());
        let _ = writeln!(text, "| `{name}` | {every} s | {} | {} |", sources.join("; "), kind.privilege);
    }
    text
}

/// Reason, state and effect, next step.
pub fn conditions() -> String {
    let row = |reason: &Reason| format!("| `{reason}` | {} | {} |\n", reason.meaning(), reason.next_step());
    let rows: String = Reason::ALL.iter().map(row).collect();
    format!("| reason | state and effect | next step |\n|---|---|---|\n{rows}")
}
