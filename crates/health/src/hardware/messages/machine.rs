//! Memory and processors: EDAC, machine checks, firmware's reports (APEI), and a processor that is stuck.

use super::{Advice, Effect, FaultLevel, Finding, MAX_REMEMBERED, Reader, Subsystem, between, leading_number};

/// Of the status of a machine check: the error was not corrected.
const UNCORRECTED: u64 = 1 << 61;

const HARDWARE_ERROR: &str = "[Hardware Error]:";

fn fault(code: &str, level: FaultLevel, advice: Advice) -> Finding {
    Finding::fault(Subsystem::Machine, code, level, advice)
}

fn fatal(code: &str) -> Finding {
    fault(code, FaultLevel::Fatal, Advice::ReplaceHost)
}

fn count(code: &str) -> Finding {
    Finding::count(Subsystem::Machine, code)
}

impl Reader {
    pub(super) fn read_machine(&mut self, text: &str) -> Option<Finding> {
        if text.starts_with("EDAC MC") {
            return edac(text);
        }
        if let Some((number, message)) = firmware_event(text) {
            return self.firmware(number, message);
        }
        if let Some(message) = text.trim_start_matches("mce: ").strip_prefix(HARDWARE_ERROR) {
            return machine_check(message.trim_start());
        }
        processor(text)
    }

    /// Firmware's lines of one event have one number: the module's name is in another line than the error.
    fn firmware(&mut self, number: u32, message: &str) -> Option<Finding> {
        if let Some(module) = message.strip_prefix("fru_text: ") {
            if self.modules.len() >= MAX_REMEMBERED {
                self.modules.clear();
            }
            self.modules.insert(number, module.trim().chars().take(40).collect());
            return None;
        }
        let found = if message.starts_with("It has been corrected by h/w") {
            count("APEI_CORRECTED")
        } else if message.starts_with("error_type:") && message.contains("multi-bit ECC") {
            fatal("APEI_MULTIBIT_ECC")
        } else if message.starts_with("event severity: corrected") {
            count("APEI_CORRECTED").with(Effect::Detail)
        } else if message.starts_with("event severity: fatal") {
            fatal("APEI_FATAL")
        } else if message.starts_with("event severity: recoverable") {
            fault("APEI_RECOVERABLE", FaultLevel::Warning, Advice::Investigate)
        } else {
            return None;
        };
        Some(found.of(self.modules.get(&number).map_or("", String::as_str)))
    }
}

/// `{7}[Hardware Error]:   error_type: 3, multi-bit ECC`.
fn firmware_event(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = text.strip_prefix('{')?.split_once('}')?;
    Some((number.parse().ok()?, rest.strip_prefix(HARDWARE_ERROR)?.trim_start()))
}

/// `EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (…)`.
fn edac(text: &str) -> Option<Finding> {
    let message = text.split_once(": ")?.1;
    let (number, message) = message.split_once(' ')?;
    number.parse::<u32>().ok()?;
    let module = message.split_once(" on ").map_or("", |(_, rest)| rest.split(" (").next().unwrap_or_default());
    let found = if message.starts_with("UE ") {
        fatal("EDAC_UE")
    } else if message.starts_with("CE ") {
        count("EDAC_CE")
    } else {
        return None;
    };
    Some(found.of(module.trim()))
}

/// `CPU:21 (19:21:0) MC5_STATUS[-|UE|…]: 0x…` of AMD, `CPU 21: Machine Check: 0 Bank 5: bea0000000000108` of all.
fn machine_check(message: &str) -> Option<Finding> {
    if message.starts_with("Machine check events logged") {
        return Some(count("MCE_LOGGED"));
    }
    let processor = leading_number(message.strip_prefix("CPU")?.trim_start_matches([':', ' ']))?;
    let is_uncorrected = if let Some(flags) = between(message, "_STATUS[", "]") {
        flags.split('|').any(|flag| flag == "UE")
    } else {
        let status = message.split_once(" Bank ")?.1.split_once(": ")?.1.trim();
        u64::from_str_radix(status, 16).ok()? & UNCORRECTED != 0
    };
    let found = if is_uncorrected { fatal("MCE_UE") } else { count("MCE_CE") };
    Some(found.of(format!("CPU:{processor}")))
}

fn processor(text: &str) -> Option<Finding> {
    let warning = |code| fault(code, FaultLevel::Warning, Advice::Investigate);
    if text.starts_with("Memory failure: ") && text.contains(": recovery action for ") {
        return Some(warning("MEMORY_FAILURE"));
    }
    if let Some(rest) = text.strip_prefix("watchdog: ") {
        let found = match rest.split_once("soft lockup - ") {
            Some((_, rest)) => warning("SOFT_LOCKUP").of(rest.split(' ').next().unwrap_or_default()),
            None => {
                let processor = leading_number(rest.split_once("hard LOCKUP on cpu ")?.1)?;
                fault("HARD_LOCKUP", FaultLevel::Fatal, Advice::NodeReboot).of(format!("CPU#{processor}"))
            }
        };
        return Some(found);
    }
    if text.starts_with("oom-kill:constraint=CONSTRAINT_MEMCG") {
        return Some(Finding::info(Subsystem::Machine, "OOM_MEMCG", Advice::None));
    }
    // The name of a process comes first, so this is never more than a count.
    let is_nccl = text.contains(": segfault at ") && text.contains(" in libnccl");
    is_nccl.then(|| count("NCCL_SEGFAULT"))
}
