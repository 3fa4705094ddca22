//! Addresses of PCI functions.

use std::fmt;
use std::str::FromStr;

/// The address of a PCI function, such as `0000:9b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// Another function of the same device.
    #[must_use]
    pub const fn with_function(self, function: u8) -> Self {
        Self { function, ..self }
    }
}

/// A text that is not the address of a PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciAddressError(String);

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// The NVIDIA driver leaves out the function, which is 0 then.
    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        read(text).ok_or_else(|| PciAddressError(text.chars().take(40).collect()))
    }
}

fn read(text: &str) -> Option<PciAddress> {
    let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
        let is_hex = digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u32::from_str_radix(part, 16).ok()).flatten()
    };
    let mut parts = text.split(':');
    let domain = hex(parts.next()?, 4..=8)?;
    let bus = u8::try_from(hex(parts.next()?, 2..=2)?).ok()?;
    let (device, function) = match parts.next()?.split_once('.') {
        Some((device, function)) => (hex(device, 2..=2)?, hex(function, 1..=1)?),
        None => (hex(text.rsplit(':').next()?, 2..=2)?, 0),
    };
    let (device, function) = (u8::try_from(device).ok()?, u8::try_from(function).ok()?);
    (parts.next().is_none() && device < 32 && function < 8).then_some(PciAddress { domain, bus, device, function })
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl fmt::Display for PciAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not the address of a PCI function: {}", self.0)
    }
}

impl std::error::Error for PciAddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form_and_shown_in_one() {
        let read = |text: &str| text.parse::<PciAddress>().map(|address| address.to_string()).ok();
        for (text, shown) in [
            ("0000:9b:00", "0000:9b:00.0"),
            ("0009:01:00.0", "0009:01:00.0"),
            ("00000000:0F:00.1", "0000:0f:00.1"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(read(text).as_deref(), Some(shown));
        }
        for text in ["", "0000:9b", "0000:9b:00.8", "0000:9b:20.0", "0000:9b:00:01", "+000:9b:00.0", "0000:9b:00.", "x"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
