//! What a kernel message means for a device. Pure; a parser per family, in the order of this list. A message that none of them
//! knows leads to no finding.

mod amdgpu;
pub mod catalogue;
mod machine;
mod mlx5;
mod nvidia;
mod pcie;
mod storage;
mod xid;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vcn::words;

use super::pci::PciAddress;
use crate::kernel_log::Record;

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The driver or subsystem that wrote the message.
    pub subsystem: Subsystem,
    /// The code of the cause, such as `79` or `EDAC_UE`; empty where the message is of no interest.
    pub code: String,
    /// The device, if the message names one: a PCI address, a disk, a memory module.
    pub device: String,
    /// How bad it is.
    pub level: FaultLevel,
    /// What it takes to end it.
    pub advice: Advice,
    /// Whether the device has a problem. Other findings are counted only.
    pub is_fault: bool,
    /// What it does to earlier ones.
    pub effect: Effect,
}

/// The part of the kernel that wrote a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subsystem {
    /// The GPU driver of NVIDIA.
    Nvidia,
    /// NVIDIA's driver of NVSwitches.
    Nvswitch,
    /// The GPU driver of AMD.
    Amdgpu,
    /// The driver of NVIDIA's network adapters.
    Mlx5,
    /// The PCI Express bus.
    Pcie,
    /// Disks and their controllers.
    Storage,
    /// Memory, processors, and anything else.
    #[default]
    Machine,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultLevel {
    /// Of interest, but not a fault.
    Info,
    /// The device works, with less or not for long.
    Warning,
    /// The device does not work.
    Fatal,
}

/// What a finding does to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One more of its code.
    Occurrence,
    /// A further line about an occurrence, which is not counted.
    Detail,
    /// It ends all earlier ones of its device.
    EndsDevice,
    /// It ends all earlier ones of NVIDIA's drivers.
    EndsNvidia,
}

/// What ends a fault: NVIDIA's words where they have one. The later in this list, the more it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[expect(missing_docs, reason = "each is explained by Advice::text")]
pub enum Advice {
    None,
    Ignore,
    Continuation,
    NotKernel,
    Unparsed,
    Clear,
    ResetMarker,
    Follow,
    Count,
    FollowXid48,
    RestartApp,
    Xid154Eval,
    FixSoftware,
    UpdateSwfw,
    Investigate,
    InvestigatePeer,
    CountFlap,
    CheckCable,
    CheckMechanicals,
    CheckUvm,
    ResetGpuLater,
    RestartVm,
    RecoverImex,
    DrainP2p,
    ResetGpu,
    DrainAndReset,
    WorkflowXid48,
    WorkflowNvlinkErr,
    WorkflowNvlink5Err,
    WorkflowNvlink5Reset,
    ResetFabric,
    NodeReboot,
    RestartBm,
    ContactSupport,
    ReplaceHost,
}

words!(
    Advice: None = "NONE", Ignore = "IGNORE", Continuation = "CONTINUATION", NotKernel = "NOT_KERNEL", Unparsed = "UNPARSED",
    Clear = "CLEAR", ResetMarker = "RESET_MARKER", Follow = "FOLLOW", Count = "COUNT", FollowXid48 = "FOLLOW_XID_48",
    RestartApp = "RESTART_APP", Xid154Eval = "XID_154_EVAL", FixSoftware = "FIX_SOFTWARE", UpdateSwfw = "UPDATE_SWFW",
    Investigate = "INVESTIGATE", InvestigatePeer = "INVESTIGATE_PEER", CountFlap = "COUNT_FLAP", CheckCable = "CHECK_CABLE",
    CheckMechanicals = "CHECK_MECHANICALS", CheckUvm = "CHECK_UVM", ResetGpuLater = "RESET_GPU_LATER", RestartVm = "RESTART_VM",
    RecoverImex = "RECOVER_IMEX", DrainP2p = "DRAIN_P2P", ResetGpu = "RESET_GPU", DrainAndReset = "DRAIN_AND_RESET",
    WorkflowXid48 = "WORKFLOW_XID_48", WorkflowNvlinkErr = "WORKFLOW_NVLINK_ERR", WorkflowNvlink5Err = "WORKFLOW_NVLINK5_ERR",
    WorkflowNvlink5Reset = "WORKFLOW_NVLINK5_ERR:RESET_GPU", ResetFabric = "RESET_FABRIC", NodeReboot = "NODE_REBOOT",
    RestartBm = "RESTART_BM", ContactSupport = "CONTACT_SUPPORT", ReplaceHost = "REPLACE_HOST",
);

words!(FaultLevel: Info = "info", Warning = "warning", Fatal = "fatal");

impl TryFrom<String> for Advice {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Self::from_word(&word).ok_or_else(|| format!("unknown advice: {word}"))
    }
}

impl From<Advice> for &'static str {
    fn from(advice: Advice) -> Self {
        advice.as_str()
    }
}

/// Reads messages in order; some need earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The module that firmware named, by the number that joins the lines of one of its events.
    modules: BTreeMap<u32, String>,
    /// When an operator last changed the mode of a network adapter.
    mode_changes: BTreeMap<PciAddress, f64>,
}

/// How many entries a map of [`Reader`] has at most.
const MAX_REMEMBERED: usize = 64;

impl Reader {
    /// The finding of a message.
    pub fn read(&mut self, record: &Record) -> Finding {
        let text = record.text.as_str();
        let found = nvidia::read(text)
            .or_else(|| amdgpu::read(text))
            .or_else(|| self.read_mlx5(record))
            .or_else(|| pcie::read(text))
            .or_else(|| self.read_machine(text))
            .or_else(|| storage::read(text));
        found.unwrap_or_else(|| Finding::nothing(&driver_and_device(text).unwrap_or_default().1))
    }
}

impl Finding {
    /// A message of no interest.
    fn nothing(device: &str) -> Self {
        Self {
            subsystem: Subsystem::Machine,
            code: String::new(),
            device: device.to_owned(),
            level: FaultLevel::Info,
            advice: Advice::None,
            is_fault: false,
            effect: Effect::Occurrence,
        }
    }

    fn fault(subsystem: Subsystem, code: &str, level: FaultLevel, advice: Advice) -> Self {
        Self { subsystem, code: code.to_owned(), level, advice, is_fault: true, ..Self::nothing("") }
    }

    /// Something that is counted, because only its rate says anything.
    fn count(subsystem: Subsystem, code: &str) -> Self {
        let (level, advice) = (FaultLevel::Warning, Advice::Count);
        Self { level, advice, is_fault: false, ..Self::fault(subsystem, code, level, advice) }
    }

    /// Something to know that is not a fault.
    fn info(subsystem: Subsystem, code: &str, advice: Advice) -> Self {
        Self { is_fault: false, ..Self::fault(subsystem, code, FaultLevel::Info, advice) }
    }

    fn of(self, device: impl ToString) -> Self {
        Self { device: device.to_string(), ..self }
    }

    fn with(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }
}

impl Advice {
    /// What a person does.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None | Self::Ignore | Self::Continuation | Self::NotKernel | Self::Clear | Self::ResetMarker => {
                "nothing"
            }
            Self::Unparsed => "nothing: the message is incomplete",
            Self::Follow => "nothing: it follows another error",
            Self::Count => "nothing: only a rising rate says something",
            Self::FollowXid48 => "see Xid 48, which it explains",
            Self::RestartApp => "restart the program that used the device",
            Self::Xid154Eval => "follow Xid 154 if there is one; otherwise restart the program",
            Self::FixSoftware => "correct the installed driver and firmware packages",
            Self::UpdateSwfw => "update driver and firmware",
            Self::Investigate => "watch the device; if it happens again, report the host",
            Self::InvestigatePeer => "look at the device at the other end of the link",
            Self::CountFlap => "compare with other ports; if only this one loses its link, report the host",
            Self::CheckCable => "report the port's cable or module",
            Self::CheckMechanicals => "report the host: a power cable or a seat is loose",
            Self::CheckUvm => "reset the GPU if unified memory or vGPU is in use",
            Self::ResetGpuLater => "reset the GPU when its jobs have ended",
            Self::RestartVm => "restart the virtual machine",
            Self::RecoverImex => "restart the IMEX domain",
            Self::DrainP2p => "end the jobs that use peer-to-peer access to this GPU",
            Self::ResetGpu => "end the GPU's jobs and reset it",
            Self::DrainAndReset => "drain the node, then reset the GPU",
            Self::WorkflowXid48 => "end the GPU's jobs and reset it; if it happens again, report the host",
            Self::WorkflowNvlinkErr | Self::WorkflowNvlink5Err => {
                "end the GPU's jobs and reset it; if the link fails again, report the host"
            }
            Self::WorkflowNvlink5Reset => "end the GPU's jobs and reset it",
            Self::ResetFabric => "drain the node, then reset all GPUs and switches, or reboot",
            Self::NodeReboot => "drain the node and reboot it",
            Self::RestartBm => "drain the node and reboot it; if it happens again, report the host",
            Self::ContactSupport => "report the host",
            Self::ReplaceHost => "drain the node, report the host and replace it",
        }
    }
}

/// The driver, and the device as text, of `driver 0000:9b:00.0: …`, `driver 0000:9b:00.0 name: …` and `nvme nvme0: …`.
fn driver_and_device(text: &str) -> Option<(&str, String)> {
    let (driver, rest) = text.split_once(' ')?;
    let word = rest.split(' ').next()?;
    let word = word.strip_suffix(':').unwrap_or(word);
    let is_disk = matches!(driver, "nvme" | "block") && word.starts_with("nvme");
    if is_disk {
        return Some((driver, word.to_owned()));
    }
    let is_driver = driver.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    is_driver.then(|| word.parse::<PciAddress>().ok()).flatten().map(|address| (driver, address.to_string()))
}

/// The text behind `driver 0000:9b:00.0` or `driver 0000:9b:00.0:`.
fn after_device(text: &str) -> &str {
    let rest = text.splitn(3, ' ').nth(2);
    rest.unwrap_or_default()
}

/// What stands between two words.
fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split_once(behind).map(|(inside, _)| inside)
}

/// The number at the start of a text.
fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}
