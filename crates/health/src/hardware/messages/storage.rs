//! NVMe disks and the block layer.

use super::{Advice, FaultLevel, Finding, Subsystem, after_device, between, driver_and_device};

/// Devices without a medium answer with such errors, which are not failures.
const NO_DISKS: &[&str] = &["fd", "sr", "loop", "nbd", "zram"];

pub(super) fn read(text: &str) -> Option<Finding> {
    match driver_and_device(text) {
        Some(("nvme", disk)) => nvme(after_device(text)).map(|found| found.of(disk)),
        Some(("block", disk)) if after_device(text).starts_with("no available path - failing I/O") => {
            Some(fault("NVME_NO_PATH", FaultLevel::Fatal, Advice::Investigate).of(disk))
        }
        _ => block(text),
    }
}

fn fault(code: &str, level: FaultLevel, advice: Advice) -> Finding {
    Finding::fault(Subsystem::Storage, code, level, advice)
}

fn nvme(message: &str) -> Option<Finding> {
    let is_gone = ["Removing after probe failure", "Disabling device after reset failure", "Removing ctrl"];
    let found = if is_gone.iter().any(|words| message.starts_with(words)) {
        fault("NVME_REMOVED", FaultLevel::Fatal, Advice::ReplaceHost)
    } else if message.starts_with("controller is down; will reset") {
        fault("NVME_DOWN", FaultLevel::Warning, Advice::Investigate)
    } else if message.starts_with("I/O ") && message.contains("timeout, reset controller") {
        fault("NVME_TIMEOUT", FaultLevel::Warning, Advice::Investigate)
    } else if message.starts_with("I/O ") && message.contains("timeout, ") || message.starts_with("Abort status") {
        Finding::info(Subsystem::Storage, "", Advice::Count)
    } else {
        return None;
    };
    Some(found)
}

/// `blk_update_request: I/O error, dev nvme1n1, sector 1234567`; newer kernels leave out the function's name.
fn block(text: &str) -> Option<Finding> {
    let message = text.strip_prefix("blk_update_request: ").unwrap_or(text);
    let disk = between(message, "error, dev ", ",").filter(|disk| !disk.is_empty() && disk.len() < 32)?;
    let kinds = [("I/O ", "IO_ERROR"), ("critical medium ", "MEDIUM_ERROR"), ("critical target ", "TARGET_ERROR")];
    let code = kinds.iter().find(|(words, _)| message.starts_with(words)).map(|(_, code)| *code);
    let is_disk = !NO_DISKS.iter().any(|name| disk.starts_with(name));
    Some(match code.filter(|_| is_disk) {
        Some(code) => fault(code, FaultLevel::Warning, Advice::Investigate).of(disk),
        None => Finding::nothing(disk),
    })
}
