//! The driver of NVIDIA's network adapters, mlx5.

use super::{Advice, Effect, FaultLevel, Finding, MAX_REMEMBERED, Reader, Subsystem, after_device, driver_and_device};
use crate::kernel_log::Record;

/// Links come and go while a machine boots and the cloud agent configures them (oci-hpc uses the same).
const LINK_SETTLING_SECONDS: f64 = 1800.0;

/// A change of the adapter's mode takes its links down within this time, in seconds.
const MODE_CHANGE: f64 = 30.0;

/// Words of the driver about an adapter that works no more.
const FAILURE_WORDS: &[&str] = &[
    "handling bad device here",
    "Fatal error",
    "reached miss count",
    "health compromised",
    "health recovery failed",
    "health recovery flow aborted",
    "firmware internal error",
    "waiting for FW initialization, timeout abort",
];

impl Reader {
    pub(super) fn read_mlx5(&mut self, record: &Record) -> Option<Finding> {
        let text = record.text.as_str();
        let device = driver_and_device(text).filter(|(driver, _)| *driver == "mlx5_core").map(|(_, device)| device);
        let message = match (&device, text.strip_prefix("mlx5_core ")) {
            (Some(_), _) => after_device(text),
            (None, Some(message)) => message,
            (None, None) => text.starts_with("mlx5_").then_some(text)?,
        };
        if message.contains("E-Switch: ") {
            self.note_mode_change(device.as_deref(), record.at);
            return None;
        }
        let found = if is_link_down(message) {
            let advice = if device.is_some() { Advice::CountFlap } else { Advice::CheckCable };
            let is_quiet = self.is_quiet(device.as_deref(), record.at);
            (!is_quiet).then(|| Finding::fault(Subsystem::Mlx5, "LINK_DOWN", FaultLevel::Warning, advice))
        } else {
            judge(message)
        };
        found.map(|found| found.of(device.unwrap_or_default()))
    }

    fn note_mode_change(&mut self, device: Option<&str>, at: Option<f64>) {
        if let (Some(device), Some(at)) = (device.and_then(|device| device.parse().ok()), at)
            && (self.mode_changes.len() < MAX_REMEMBERED || self.mode_changes.contains_key(&device))
        {
            self.mode_changes.insert(device, at);
        }
    }

    /// Whether a link that goes down now says nothing.
    fn is_quiet(&self, device: Option<&str>, at: Option<f64>) -> bool {
        let changed = device.and_then(|device| self.mode_changes.get(&device.parse().ok()?));
        let after_change = |at: f64| changed.is_some_and(|changed| (0.0..MODE_CHANGE).contains(&(at - changed)));
        at.is_some_and(|at| at < LINK_SETTLING_SECONDS || after_change(at))
    }
}

fn is_link_down(message: &str) -> bool {
    message.ends_with(": Link down") || message.contains(": Port: ") && message.ends_with("Link DOWN")
}

fn judge(message: &str) -> Option<Finding> {
    let fault = |code, level, advice| Finding::fault(Subsystem::Mlx5, code, level, advice);
    let warning = |code, advice| fault(code, FaultLevel::Warning, advice);
    let fatal = |code| fault(code, FaultLevel::Fatal, Advice::NodeReboot);
    let found = if message.contains("Port module event[error]") {
        let is_hot = message.contains("High Temperature");
        warning(if is_hot { "MODULE_HIGH_TEMP" } else { "MODULE_ERROR" }, Advice::CheckCable)
    } else if message.contains("available PCIe bandwidth, limited by") {
        warning("PCIE_LIMITED", Advice::NodeReboot)
    } else if message.contains(" timeout. Will cause a leak of a command resource") {
        fatal("MLX5_CMD_TIMEOUT")
    } else if FAILURE_WORDS.iter().any(|words| message.contains(words)) {
        fatal("MLX5_FATAL")
    } else if message.contains("High temperature on sensors") {
        warning("MLX5_HIGH_TEMP", Advice::Investigate)
    } else if message.contains("TX timeout detected") {
        warning("MLX5_TX_TIMEOUT", Advice::Investigate)
    } else if message.contains("Detected insufficient power on the PCIe slot") {
        Finding::count(Subsystem::Mlx5, "SLOT_POWER")
    } else if message.contains("ACCESS_REG(0x805)") {
        Finding::info(Subsystem::Mlx5, "ACCESS_REG", Advice::Ignore)
    } else if message.contains("health recovery succeeded") {
        Finding::info(Subsystem::Mlx5, "", Advice::ResetMarker).with(Effect::EndsDevice)
    } else {
        return None;
    };
    Some(found)
}
