//! Errors of PCI Express: `pcieport 0000:00:03.0: AER: …`. The kernel logs at most ten of them in five seconds.

use super::{Advice, FaultLevel, Finding, Subsystem, after_device, driver_and_device};

pub(super) fn read(text: &str) -> Option<Finding> {
    let (_, device) = driver_and_device(text)?;
    let message = after_device(text);
    let message = match message.strip_prefix("AER: ") {
        Some(message) => message,
        None => message.strip_prefix("PCIe Bus Error: ")?,
    };
    judge(message).map(|found| found.of(device))
}

fn judge(message: &str) -> Option<Finding> {
    let message = message.trim_start_matches("Multiple ").trim_start_matches("PCIe Bus Error: ");
    let kind = message.strip_prefix("severity=").unwrap_or(message);
    let fatal = |code| Finding::fault(Subsystem::Pcie, code, FaultLevel::Fatal, Advice::NodeReboot);
    let has = |words: &[&str]| words.iter().any(|word| kind.starts_with(word));
    // Kernels before 6.10 write Corrected and Uncorrected.
    let found = if has(&["Uncorrected (Fatal)", "Uncorrectable (Fatal)"]) {
        fatal("AER_FATAL")
    } else if message.starts_with("device recovery failed") || message.starts_with("can't recover") {
        fatal("AER_NO_RECOVERY")
    } else if has(&["Uncorrected (Non-Fatal)", "Uncorrectable (Non-Fatal)"]) {
        Finding::fault(Subsystem::Pcie, "AER_NONFATAL", FaultLevel::Warning, Advice::Investigate)
    } else if has(&["Corrected", "Correctable"]) {
        Finding::count(Subsystem::Pcie, "AER_CORRECTABLE")
    } else {
        return None;
    };
    Some(found)
}
