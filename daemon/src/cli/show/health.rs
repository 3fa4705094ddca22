//! `health`: the problems with their next steps, then all other signals as a table.

use std::time::{SystemTime, UNIX_EPOCH};

use command::page::{Page, age};
use health::{Report, SignalState, Verdict, collectors};

pub(super) fn text(page: &mut Page, report: &Report, now: SystemTime) {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let ago = |millis: u64| age(now.saturating_sub(millis / 1000));
    let (mut problems, mut others): (Vec<_>, Vec<_>) =
        report.signals.iter().partition(|state| state.verdict == Verdict::Problem);
    problems.sort_by_key(|state| (std::cmp::Reverse(state.severity), state.since_unix_millis));
    others.sort_by_key(|state| state.verdict);
    if report.is_off {
        page.line("Health signals are off: the agent's setting HEALTH is `off`.");
        return;
    }
    page.line(match (problems.len(), report.signals.len()) {
        (_, 0) => "No signal was measured yet.".to_owned(),
        (0, all) => format!("No problem in {all} signals."),
        (count, all) => format!("{count} of {all} signals have a problem:"),
    });
    for (number, state) in problems.iter().enumerate() {
        problem(page, number + 1, state, &ago);
    }
    page.line("");
    let (waiting, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|state| state.is_waiting);
    let row = |state: &&SignalState| {
        vec![
            state.signal.clone(),
            state.verdict.to_string(),
            state.value.map(|value| state.unit.show(value)).unwrap_or_default(),
            state.bound.clone().unwrap_or_default(),
            ago(state.sampled_unix_millis),
            state.detail.clone(),
        ]
    };
    page.columns(&["SIGNAL", "RESULT", "VALUE", "HEALTHY", "AGE", "DETAIL"], others.iter().map(row));
    if !waiting.is_empty() {
        let names: Vec<&str> = waiting.iter().map(|state| state.signal.as_str()).collect();
        page.line("");
        page.line(format_args!("Not measured yet (waiting for another sample): {}", names.join(", ")));
    }
}

fn problem(page: &mut Page, number: usize, state: &SignalState, ago: &impl Fn(u64) -> String) {
    let since = ago(state.since_unix_millis);
    let severity = state.severity.unwrap_or_default();
    let value = state.value.map(|value| state.unit.show(value)).unwrap_or_default();
    let detail = if state.detail.is_empty() { String::new() } else { format!(" ({})", state.detail) };
    page.line("");
    page.line(format_args!("{number}. {} ({severity}), for {since}", state.signal));
    page.line(format_args!("   {}", state.message.as_deref().unwrap_or_default()));
    page.line(format_args!("   Measured: {value}{detail}; healthy: {}", state.bound.as_deref().unwrap_or_default()));
    if let Some(gap) = &state.not_measured {
        page.line(format_args!("   Not measured for {}: {}", ago(gap.since_unix_millis), gap.reason));
    }
    if let Some(signal) = collectors::signal(&state.signal) {
        page.line(format_args!("   Next: {}", signal.remedy));
    }
}
