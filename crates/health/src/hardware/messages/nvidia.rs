//! NVIDIA's drivers of GPUs and NVSwitches, but for Xids.

use super::{
    Advice, Effect, FaultLevel, Finding, Subsystem, after_device, between, catalogue, driver_and_device,
    leading_number, xid,
};
use crate::hardware::pci::PciAddress;

/// A link's training controller requests attention, at each boot.
const HARMLESS_SWITCH_CODE: u64 = 22013;

pub(super) fn read(text: &str) -> Option<Finding> {
    if let Some(rest) = text.strip_prefix("NVRM: ") {
        return Some(nvrm(rest));
    }
    if text.starts_with("nvidia-nvswitch") {
        return switch(text);
    }
    if text.starts_with("nvidia-peermem ") {
        return Some(Finding::info(Subsystem::Nvidia, "", Advice::Count));
    }
    probe(text)
}

fn nvrm(rest: &str) -> Finding {
    let fatal = |code, advice| Finding::fault(Subsystem::Nvidia, code, FaultLevel::Fatal, advice);
    let warning = |code, advice| Finding::fault(Subsystem::Nvidia, code, FaultLevel::Warning, advice);
    if rest.starts_with("Xid") {
        return xid::read(rest);
    }
    if rest.starts_with("loading NVIDIA UNIX") {
        return Finding::nothing("").with(Effect::EndsNvidia);
    }
    if let Some(rest) = rest.strip_prefix("The NVIDIA GPU ") {
        let is_lost = rest.contains("fallen off the bus");
        return match gpu(rest) {
            Some(gpu) if is_lost => fatal("FALLEN_OFF_BUS", Advice::RestartBm).of(gpu),
            gpu => Finding::nothing(&gpu.map_or_else(String::new, |gpu| gpu.to_string())),
        };
    }
    if let Some((gpu, rest)) = rest.strip_prefix("GPU ").and_then(|rest| Some((gpu(rest)?, rest))) {
        if rest.contains("RmInitAdapter failed") || rest.contains("rm_init_adapter failed") {
            return fatal("GPU_INIT_FAILED", Advice::RestartBm).of(gpu);
        }
        if rest.contains("fallen off the bus") {
            return fatal("FALLEN_OFF_BUS", Advice::RestartBm).of(gpu);
        }
        return Finding::nothing(&gpu.to_string());
    }
    if rest.starts_with("Rate limiting GSP RPC error prints") {
        let gpu = rest.split_once("PCI:").and_then(|(_, rest)| gpu(rest));
        let found = fatal("119", Advice::ResetGpu).with(Effect::Detail);
        return gpu.map_or_else(|| Finding::nothing(""), |gpu| found.of(gpu));
    }
    if rest.contains("GPU marked for reset") {
        return warning("GPU_MARKED_FOR_RESET", Advice::ResetGpu);
    }
    if rest.starts_with("knvlinkDiscoverPostRxDetLinks") && rest.contains("failed") {
        return warning("NVLINK_DISCOVERY", Advice::Investigate);
    }
    Finding::nothing("")
}

/// The address at the start of a text.
fn gpu(text: &str) -> Option<PciAddress> {
    let word = text.split([' ', ')']).next()?;
    word.trim_end_matches(':').parse().ok()
}

/// `nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`.
fn switch(text: &str) -> Option<Finding> {
    let message = text.split_once(": ")?.1;
    if let Some(device) = message.strip_prefix("Probing device ") {
        let device = device.split([',', ' ']).next()?.parse::<PciAddress>().ok()?;
        let found = Finding::info(Subsystem::Nvswitch, "", Advice::ResetMarker);
        return Some(found.of(device).with(Effect::EndsDevice));
    }
    if !message.starts_with("SXid") {
        return None;
    }
    let unparsed = || Finding::info(Subsystem::Nvswitch, "", Advice::Unparsed);
    let Some((device, rest)) = between(message, "(PCI:", ")")
        .and_then(|device| Some((device.parse::<PciAddress>().ok()?, message.split_once("):")?.1.trim_start())))
    else {
        return Some(unparsed());
    };
    let Some(code) = leading_number(rest) else { return Some(unparsed().of(device)) };
    let name = code.to_string();
    let words = rest.split_once(',').map_or("", |(_, words)| words.trim_start());
    let is_fatal_code = catalogue::is_fatal_sxid(code);
    let fatal = Finding::fault(Subsystem::Nvswitch, &name, FaultLevel::Fatal, Advice::ResetFabric);
    let found = if words.starts_with("Severity") || words.starts_with("Data") {
        Finding::info(Subsystem::Nvswitch, &name, Advice::Continuation).with(Effect::Detail)
    } else if words.starts_with("Fatal") {
        fatal
    } else if code == HARMLESS_SWITCH_CODE {
        Finding::info(Subsystem::Nvswitch, &name, Advice::Ignore)
    } else if words.starts_with("Non-fatal") || !is_fatal_code {
        Finding::count(Subsystem::Nvswitch, &name)
    } else {
        fatal
    };
    Some(found.of(device))
}

/// Drivers that could not start a device, in the words of older and newer kernels.
fn probe(text: &str) -> Option<Finding> {
    let fatal = |subsystem| Finding::fault(subsystem, "PROBE_FAILED", FaultLevel::Fatal, Advice::RestartBm);
    for (driver, subsystem) in [
        ("nvidia", Subsystem::Nvidia),
        ("amdgpu", Subsystem::Amdgpu),
        ("mlx5_core", Subsystem::Mlx5),
        ("nvidia-nvswitch", Subsystem::Nvswitch),
    ] {
        let older = text.strip_prefix(driver).and_then(|rest| rest.strip_prefix(": probe of "));
        if let Some(address) = older.filter(|rest| rest.contains("failed with error")).and_then(gpu) {
            return Some(fatal(subsystem).of(address));
        }
        if let Some((_, device)) = driver_and_device(text).filter(|(name, _)| *name == driver) {
            let rest = after_device(text);
            if rest.starts_with("probe with driver") && rest.contains("failed with error") {
                return Some(fatal(subsystem).of(device));
            }
            if driver == "nvidia" && rest.starts_with("Direct firmware load for nvidia/") && rest.contains("failed") {
                let missing = Finding::count(Subsystem::Nvidia, "GSP_FIRMWARE_MISSING");
                return Some(Finding { advice: Advice::FixSoftware, ..missing.of(device) });
            }
        }
    }
    None
}
