//! devlink: what drivers report about the health of their devices. Reading needs no capability.

use vcn::HealthReporter;

use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::generic::{self, HEADER_LEN, Message};
use crate::wire::transport::Request;

// linux/devlink.h
const DEVLINK_CMD_HEALTH_REPORTER_GET: u8 = 52;
const DEVLINK_ATTR_BUS_NAME: u16 = 1;
const DEVLINK_ATTR_DEV_NAME: u16 = 2;
const DEVLINK_ATTR_HEALTH_REPORTER: u16 = 114;
const DEVLINK_ATTR_HEALTH_REPORTER_NAME: u16 = 115;
const DEVLINK_ATTR_HEALTH_REPORTER_STATE: u16 = 116;
const DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT: u16 = 117;
/// The state `DEVLINK_HEALTH_REPORTER_STATE_HEALTHY` of linux/devlink.h.
const HEALTHY: u8 = 0;

/// All health reporters of devices in the calling thread's network namespace, none where the kernel has no devlink.
///
/// # Errors
/// As the kernel answers.
pub fn health_reporters() -> Result<Vec<HealthReporter>> {
    let read = || {
        let Some((mut socket, family)) = generic::open("devlink")? else { return Ok(Vec::new()) };
        let list = Message { command: DEVLINK_CMD_HEALTH_REPORTER_GET, attributes: Vec::new() };
        socket.list(Request { message_type: family, flags: 0 }, &list, reporter)
    };
    read().map_err(|cause: Cause| cause.during("list", "health reporters of devlink"))
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
