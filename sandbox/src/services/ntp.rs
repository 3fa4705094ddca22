//! The time service: this machine's clock as SNTP (RFC 4330).

use std::time::{SystemTime, UNIX_EPOCH};

/// The length of a message without extensions, in bytes.
const LENGTH: usize = 48;
/// Seconds from 1900, where NTP's count starts, to 1970.
const ERA: u64 = 2_208_988_800;
const MODE_CLIENT: u8 = 3;
const MODE_SERVER: u8 = 4;

/// Answers one message, received at `now`; `None` when it is not from a client.
pub(crate) fn answer(query: &[u8], now: SystemTime) -> Option<Vec<u8>> {
    let query: &[u8; LENGTH] = query.first_chunk()?;
    let [first, ..] = *query;
    if first & 0x07 != MODE_CLIENT {
        return None;
    }
    let version = first & 0x38;
    let time = timestamp(now);
    let originate = query.get(40..LENGTH)?;
    Some(
        [
            // No leap second; stratum 1; poll interval and precision (2^-20 s).
            &[version | MODE_SERVER, 1, 6, 0xec][..],
            // Root delay and dispersion.
            &[0; 8],
            b"LOCL",
            &time,
            originate,
            &time,
            &time,
        ]
        .concat(),
    )
}

/// Seconds and their 2^-32 fractions since 1900.
fn timestamp(now: SystemTime) -> [u8; 8] {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().wrapping_add(ERA) << 32;
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (seconds | fraction).to_be_bytes()
}
