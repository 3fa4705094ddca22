//! The GPUs that the NVIDIA driver has, by its files below /proc. A read may hang while a GPU is lost.

use super::pci::PciAddress;
use crate::host::{Host, names};

/// The driver's folder, with one folder per GPU.
pub(crate) const GPUS: &str = "driver/nvidia/gpus";

/// A GPU that the driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverGpu {
    pub(crate) address: PciAddress,
    /// As the driver writes it: with question marks while it has not started the GPU.
    pub(crate) uuid: Option<String>,
    /// Whether the driver keeps it out of use.
    pub(crate) is_excluded: bool,
}

/// The GPUs, in the order of their addresses. One whose file cannot be read has no UUID.
pub(crate) fn gpus(host: &Host) -> Vec<DriverGpu> {
    let addresses = names(&host.proc.join(GPUS)).into_iter().filter_map(|name| name.parse().ok());
    let read = |address| {
        let information = host.proc(&format!("{GPUS}/{address}/information"));
        DriverGpu::read(address, &information.unwrap_or_default())
    };
    addresses.map(read).collect()
}

impl DriverGpu {
    /// Reads the file `information`: a name, a colon and a value per line. Lines in another form are left out.
    fn read(address: PciAddress, information: &str) -> Self {
        let value = |name: &str| {
            let of_name =
                information.lines().filter_map(|line| line.split_once(':')).filter(|(key, _)| key.trim() == name);
            of_name.map(|(_, value)| value.trim()).find(|value| !value.is_empty())
        };
        Self { address, uuid: value("GPU UUID").map(str::to_owned), is_excluded: value("GPU Excluded") == Some("Yes") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_line_hides_no_other() {
        let address = "0000:00:06.0".parse().unwrap();
        let read = |text: &str| {
            let gpu = DriverGpu::read(address, text);
            (gpu.uuid, gpu.is_excluded)
        };
        let (uuid, excluded) = ("GPU UUID: \t GPU-5a0d\n", "GPU Excluded:\t Yes\n");
        let expected = (Some("GPU-5a0d".to_owned()), true);
        assert_eq!(
            read(&format!("Model: \t\t NVIDIA H100\n{uuid}Bus Location: \t 0000:00:06.0\n{excluded}")),
            expected
        );
        for line in
            ["", ":", "GPU UUID", "GPU UUID:", "GPU Excluded:", "\u{fffd}\0: GPU UUID: x", "Model: GPU Excluded: No"]
        {
            let all = format!("{line}\n{uuid}{line}\n{excluded}{line}");
            assert_eq!(read(&all), expected, "{line:?}");
        }
        assert_eq!(read("GPU Excluded:\t No\n"), (None, false));
        assert_eq!(read(""), (None, false));
    }
}
