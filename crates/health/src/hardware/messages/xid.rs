//! `NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, name=python3, text`. The name of a process is any text of 15 characters,
//! so nothing is searched for that fits into it.

use super::catalogue::{self, Link};
use super::{Advice, Effect, FaultLevel, Finding, Subsystem, between};
use crate::hardware::pci::PciAddress;

/// Bits of the first NVLink register that NVIDIA calls harmless: 0, 23, 30.
const HARMLESS_LINK_BITS: u64 = 1 | 1 << 23 | 1 << 30;

/// By whom a row could not be remapped for good, in the driver's words.
const ROWS_EXHAUSTED: &[&str] = &["All reserved rows", "full", "aximum", "xhausted", "no spare", "No spare", "xceed"];

/// Reads a message without its `NVRM: `.
pub(super) fn read(text: &str) -> Finding {
    let unparsed = |code: &str| Finding::info(Subsystem::Nvidia, code, Advice::Unparsed);
    let rest = text.trim_start_matches("Xid").trim_start();
    let device = rest.strip_prefix('(').and_then(|inside| {
        let (inside, rest) = inside.split_once(')')?;
        let address = inside.trim_start().trim_start_matches("PCI:").split(' ').next()?;
        Some((address.parse::<PciAddress>().ok()?, rest.trim_start().strip_prefix(':')?.trim_start()))
    });
    let Some((device, rest)) = device else { return unparsed("") };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (code, rest) = rest.split_at(end);
    if code.is_empty() || code.len() > 4 {
        return unparsed("").of(device);
    }
    let found = match rest.trim_start().strip_prefix(',') {
        Some(words) => judge(code, words.trim_start()),
        None if rest.trim().is_empty() => judge(code, ""),
        None => unparsed(code),
    };
    found.of(device)
}

fn judge(code: &str, words: &str) -> Finding {
    match code {
        "154" => recovery_action(words),
        "64" => row_remapper(words),
        "74" if is_harmless_link_error(words) => Finding::info(Subsystem::Nvidia, code, Advice::Ignore),
        "144" | "145" | "146" | "147" | "148" | "149" | "150" => nvlink5(code, words),
        _ => by_catalogue(code, words),
    }
}

fn by_catalogue(code: &str, words: &str) -> Finding {
    let xid = code.parse().ok().and_then(catalogue::xid);
    let found = |level, advice| Finding::fault(Subsystem::Nvidia, code, level, advice);
    match xid {
        Some(row) => {
            let is_fault = row.level > FaultLevel::Info && row.advice != Advice::Count;
            Finding { is_fault, ..found(row.level, row.advice) }
        }
        // A code that is newer than the catalogue, with the driver's own request in its text.
        None if ["reset gpu to", "reset the gpu to", "gpu reset required"]
            .iter()
            .any(|request| words.to_ascii_lowercase().contains(request)) =>
        {
            found(FaultLevel::Warning, Advice::ResetGpuLater)
        }
        None => Finding::info(Subsystem::Nvidia, code, Advice::None),
    }
}

/// The driver's own verdict. Its number counts: the words in parentheses differ between drivers.
fn recovery_action(words: &str) -> Finding {
    let code = "154";
    let number = words.split_once("GPU recovery action changed from 0x").and_then(|(_, rest)| {
        let digits = rest.split_once(" to 0x")?.1;
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        u32::from_str_radix(digits.get(..end)?, 16).ok()
    });
    let fatal = |advice| Finding::fault(Subsystem::Nvidia, code, FaultLevel::Fatal, advice);
    match number {
        None => Finding::info(Subsystem::Nvidia, code, Advice::Unparsed),
        Some(0) => Finding::info(Subsystem::Nvidia, code, Advice::Clear).with(Effect::EndsDevice),
        Some(1) => fatal(Advice::ResetGpu),
        Some(2) => fatal(Advice::NodeReboot),
        Some(3) => fatal(Advice::DrainP2p),
        Some(4) => fatal(Advice::DrainAndReset),
        Some(5) => fatal(Advice::RecoverImex),
        Some(_) => fatal(Advice::ContactSupport),
    }
}

fn row_remapper(words: &str) -> Finding {
    let fault = |level, advice| Finding::fault(Subsystem::Nvidia, "64", level, advice);
    if words.contains("already pending") {
        fault(FaultLevel::Warning, Advice::ResetGpu)
    } else if ROWS_EXHAUSTED.iter().any(|word| words.contains(word)) {
        fault(FaultLevel::Fatal, Advice::ReplaceHost)
    } else {
        fault(FaultLevel::Fatal, Advice::ResetGpu)
    }
}

/// Whether the registers of an NVLink error have harmless bits only.
fn is_harmless_link_error(words: &str) -> bool {
    let registers = between(words, "fatal error detected on link ", ")").and_then(|rest| rest.split_once('('));
    let Some((_, registers)) = registers else { return false };
    let read = |word: &str| u64::from_str_radix(word.trim().trim_start_matches("0x"), 16).ok();
    let registers: Option<Vec<u64>> = registers.split(',').map(read).collect();
    match registers.as_deref() {
        Some([first, rest @ ..]) => {
            *first != 0 && first & !HARMLESS_LINK_BITS == 0 && rest.iter().all(|register| *register == 0)
        }
        _ => false,
    }
}

/// `RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 …)`: unit, information and status decide.
fn nvlink5(code: &str, words: &str) -> Finding {
    let words: Vec<&str> = words.split_whitespace().collect();
    let fault = |level, advice| Finding::fault(Subsystem::Nvidia, code, level, advice);
    // The last place: a process may have any name.
    let place = words.windows(3).rposition(
        |three| matches!(three, [_, "Fatal" | "Nonfatal" | "Non-fatal", crossing] if crossing.starts_with("XC")),
    );
    let Some([unit, severity, ..]) = place.and_then(|place| words.get(place..)) else {
        return fault(FaultLevel::Fatal, Advice::WorkflowNvlink5Err);
    };
    let hex = |word: &&&str| word.trim_matches(['(', ')']).starts_with("0x");
    let mut numbers = words.iter().filter(hex).map(|word| word.trim_matches(['(', ')']).trim_start_matches("0x"));
    let mut number = || numbers.next().and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let (information, status) = (number(), number());
    let link = Link { xid: code.parse().unwrap_or_default(), unit, information, status };
    match (catalogue::link(&link), *severity == "Fatal") {
        (Some(Advice::Ignore), false) => Finding::info(Subsystem::Nvidia, code, Advice::Ignore),
        (Some(Advice::Ignore), true) if code == "149" => Finding::info(Subsystem::Nvidia, code, Advice::Ignore),
        // NVIDIA promotes some of them: the severity then says so.
        (Some(Advice::Ignore), true) => fault(FaultLevel::Fatal, Advice::WorkflowNvlink5Reset),
        (Some(advice @ (Advice::Xid154Eval | Advice::InvestigatePeer)), _) => fault(FaultLevel::Warning, advice),
        (Some(advice), _) => fault(FaultLevel::Fatal, advice),
        (None, true) => fault(FaultLevel::Fatal, Advice::WorkflowNvlink5Err),
        (None, false) => Finding::count(Subsystem::Nvidia, code),
    }
}
