//! devlink: what drivers report about the health of their devices. Reading needs no capability.

use netlink_packet_core::{DefaultNla, Emitable};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;
use vcn::HealthReporter;

use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::transport::{Request, Transport};

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/devlink.h
const DEVLINK_CMD_HEALTH_REPORTER_GET: u8 = 52;
const DEVLINK_ATTR_BUS_NAME: u16 = 1;
const DEVLINK_ATTR_DEV_NAME: u16 = 2;
const DEVLINK_ATTR_HEALTH_REPORTER: u16 = 114;
const DEVLINK_ATTR_HEALTH_REPORTER_NAME: u16 = 115;
const DEVLINK_ATTR_HEALTH_REPORTER_STATE: u16 = 116;
const DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT: u16 = 117;
/// `DEVLINK_HEALTH_REPORTER_STATE_HEALTHY`.
const HEALTHY: u8 = 0;

const HEADER_LEN: usize = 4;

/// A request of generic netlink: command, version, attributes.
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        if let Some((header, rest)) = buffer.split_at_mut_checked(HEADER_LEN) {
            header.copy_from_slice(&[self.command, 1, 0, 0]);
            self.attributes.as_slice().emit(rest);
        }
    }
}

/// All health reporters of devices in the calling thread's network namespace, none where the kernel has no devlink.
///
/// # Errors
/// As the kernel answers.
pub fn health_reporters() -> Result<Vec<HealthReporter>> {
    let read = || {
        let mut socket = Transport::open(NETLINK_GENERIC)?;
        let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, b"devlink\0".to_vec());
        let lookup = Message { command: CTRL_CMD_GETFAMILY, attributes: vec![name] };
        let family = match socket.one(Request { message_type: GENL_ID_CTRL, flags: 0 }, &lookup, family_id) {
            Ok(family) => family,
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            Err(cause) => return Err(cause),
        };
        let list = Message { command: DEVLINK_CMD_HEALTH_REPORTER_GET, attributes: Vec::new() };
        socket.list(Request { message_type: family, flags: 0 }, &list, reporter)
    };
    read().map_err(|cause: Cause| cause.during("list", "health reporters of devlink"))
}

fn family_id(payload: &[u8]) -> Result<u16, Cause> {
    for attribute in attributes::after(payload, HEADER_LEN) {
        if let (CTRL_ATTR_FAMILY_ID, value) = attribute? {
            return attributes::u16_of(value);
        }
    }
    Err(Cause::Malformed("a family without a number"))
}

pub(crate) fn reporter(payload: &[u8]) -> Result<Option<HealthReporter>, Cause> {
    let mut found = HealthReporter::default();
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (DEVLINK_ATTR_BUS_NAME, value) => found.bus = attributes::text_of(value),
            (DEVLINK_ATTR_DEV_NAME, value) => found.device = attributes::text_of(value),
            (DEVLINK_ATTR_HEALTH_REPORTER, nested) => {
                for attribute in attributes::within(nested) {
                    match attribute? {
                        (DEVLINK_ATTR_HEALTH_REPORTER_NAME, value) => found.name = attributes::text_of(value),
                        (DEVLINK_ATTR_HEALTH_REPORTER_STATE, value) => {
                            found.is_failed = value.first().is_some_and(|state| *state != HEALTHY);
                        }
                        (DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT, value) => {
                            found.errors = value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok((!found.name.is_empty()).then_some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value, &padding].concat()
    }

    /// Flags of nested attributes, as the kernel sets them.
    const NESTED: u16 = 1 << 15;

    #[test]
    fn answer_of_a_driver_is_read() {
        let nested = [
            attribute(DEVLINK_ATTR_HEALTH_REPORTER_NAME, b"fw_fatal\0"),
            attribute(DEVLINK_ATTR_HEALTH_REPORTER_STATE, &[1]),
            attribute(DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT, &3_u64.to_ne_bytes()),
            attribute(120, &[9; 8]),
        ];
        let message = [
            vec![DEVLINK_CMD_HEALTH_REPORTER_GET, 1, 0, 0],
            attribute(DEVLINK_ATTR_BUS_NAME, b"pci\0"),
            attribute(DEVLINK_ATTR_DEV_NAME, b"0000:0c:00.0\0"),
            attribute(DEVLINK_ATTR_HEALTH_REPORTER | NESTED, &nested.concat()),
        ];
        let expected = HealthReporter {
            bus: "pci".to_owned(),
            device: "0000:0c:00.0".to_owned(),
            name: "fw_fatal".to_owned(),
            is_failed: true,
            errors: 3,
        };
        assert_eq!(reporter(&message.concat()).unwrap(), Some(expected));
        assert_eq!(reporter(&[52, 1, 0, 0]).unwrap(), None);
    }

    /// The test machine's kernel answers, whether it has such devices or not.
    #[test]
    fn kernel_accepts_the_request() {
        let found = health_reporters().unwrap();
        assert!(found.iter().all(|reporter| !reporter.device.is_empty()), "{found:?}");
    }
}
