//! The free space where captures are kept.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::error::CaptureError;

/// What a capture leaves free: this part of the file system, in percent, and this many bytes.
const FREE_PERCENT: u64 = 10;
const FREE_BYTES: u64 = 2 << 30;

#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSpace {
    free: u64,
    total: u64,
}

impl FreeSpace {
    /// Of the file system that has this path.
    pub(super) fn of(path: &Path) -> Result<Self, CaptureError> {
        let found = statvfs(path).map_err(|errno| CaptureError::Space(errno.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Ok(Self { free: bytes(found.blocks_available()), total: bytes(found.blocks()) })
    }

    /// Whether so many more bytes leave enough.
    pub(super) fn check(self, more: u64) -> Result<(), CaptureError> {
        let kept = FREE_BYTES.max(self.total / 100 * FREE_PERCENT);
        if self.free >= kept.saturating_add(more) {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        Err(CaptureError::NoSpace { free_mib: mib(self.free), total_mib: mib(self.total), size_mib: mib(more) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_leaves_a_tenth_and_two_gib_free() {
        let gib = |count: u64| count << 30;
        for (free, total, more, is_enough) in [
            (gib(2), gib(10), 0, true),
            (gib(2) - 1, gib(10), 0, false),
            (gib(2), gib(10), 1, false),
            (gib(9), gib(100), 0, false),
            (gib(11), gib(100), 1 << 20, true),
            (0, 0, 0, false),
        ] {
            assert_eq!(FreeSpace { free, total }.check(more).is_ok(), is_enough, "{free} of {total}");
        }
    }
}
