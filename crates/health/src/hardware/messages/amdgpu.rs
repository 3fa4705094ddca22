//! AMD's GPU driver: `amdgpu 0000:c3:00.0: amdgpu: {1}text`, where the second name and the number may be missing.

use super::{Advice, Effect, FaultLevel, Finding, Subsystem, after_device, driver_and_device, leading_number};

/// What a count grows by when the driver reads a suspended GPU's registers, which then are all ones.
const SUSPENDED_COUNT: u64 = 1_048_560;

pub(super) fn read(text: &str) -> Option<Finding> {
    let (_, device) = driver_and_device(text).filter(|(driver, _)| *driver == "amdgpu")?;
    let message = after_device(text);
    let message = message.strip_prefix("amdgpu: ").unwrap_or(message);
    let message = match message.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((number, rest)) if leading_number(number).is_some() => rest.trim_start(),
        _ => message,
    };
    judge(message).map(|found| found.of(device))
}

fn judge(message: &str) -> Option<Finding> {
    let fatal = |code, advice| Finding::fault(Subsystem::Amdgpu, code, FaultLevel::Fatal, advice);
    let warning = |code, advice| Finding::fault(Subsystem::Amdgpu, code, FaultLevel::Warning, advice);
    let found = if message.starts_with("uncorrectable hardware error(") {
        fatal("AMD_ATHUB", Advice::NodeReboot)
    } else if message.contains("uncorrectable hardware errors detected in") {
        match leading_number(message)? {
            0 => return None,
            count if count % SUSPENDED_COUNT == 0 => Finding::count(Subsystem::Amdgpu, "AMD_RAS_UE"),
            _ => fatal("AMD_RAS_UE", Advice::ResetGpu),
        }
    } else if message.contains("correctable hardware errors detected in") {
        match leading_number(message)? {
            0 => return None,
            _ => Finding::count(Subsystem::Amdgpu, "AMD_RAS_CE"),
        }
    } else if message.starts_with("failed to reserve bad page") {
        fatal("AMD_BAD_PAGE_FAILED", Advice::ReplaceHost)
    } else if message.contains("RAS records") && message.contains("exceeds threshold")
        || message.contains("bad page threshold")
    {
        fatal("AMD_BAD_PAGE_THRESHOLD", Advice::ReplaceHost)
    } else if message.starts_with("ring ") && message.contains(" timeout") && !message.contains("soft recovered") {
        warning("AMD_RING_TIMEOUT", Advice::Investigate)
    } else if message.starts_with("[Hardware Error]: Accelerator Check Architecture") {
        warning("AMD_ACA", Advice::Investigate)
    } else if message.starts_with("Fatal error during GPU init") {
        fatal("GPU_INIT_FAILED", Advice::RestartBm)
    } else if message.starts_with("GPU reset begin") {
        Finding::info(Subsystem::Amdgpu, "", Advice::Follow)
    } else if message.contains("GPU reset succeeded") || is_reset_end(message, true) {
        Finding::info(Subsystem::Amdgpu, "", Advice::ResetMarker).with(Effect::EndsDevice)
    } else if message.starts_with("GPU reset") && message.contains("failed") || is_reset_end(message, false) {
        fatal("AMD_RESET_FAILED", Advice::NodeReboot)
    } else {
        return None;
    };
    Some(found)
}

/// `GPU reset end with ret = -22`.
fn is_reset_end(message: &str, succeeded: bool) -> bool {
    let result = message.strip_prefix("GPU reset end with ret = ");
    result.is_some_and(|result| (result.trim() == "0") == succeeded)
}
