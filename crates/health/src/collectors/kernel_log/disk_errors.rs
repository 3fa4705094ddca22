//! Kernel messages about disks that fail and file systems that shut down, and the device of each.

/// What begins a message about a file system. In lower case, as all that is compared.
const FILE_SYSTEMS: &[&str] = &["ext2-fs", "ext3-fs", "ext4-fs", "xfs", "btrfs", "f2fs-fs", "fat-fs", "jbd2", "gfs2"];

/// What a file system says when a disk or its own data fail.
const FILE_SYSTEM_ERRORS: &[&str] = &[
    "i/o error",
    "io failure",
    "corrupt",
    "log error",
    "shutting down filesystem",
    "shutdown",
    "remounting filesystem read-only",
    "remounting read-only",
    "forced readonly",
    "data loss",
    "csum failed",
    "checksum verify failed",
    "detected when updating journal",
];

/// The same, by the level that some write behind their name.
const LEVELS: &[&str] = &["-fs error (", "btrfs error (", "btrfs: error (", "btrfs critical (", "btrfs: critical ("];

/// What the block layer calls errors, in front of ` error, dev sda`. The others are refusals of what a disk cannot do.
const BLOCK_ERRORS: &[&str] = &[
    "i/o",
    "critical medium",
    "critical target",
    "critical nexus",
    "critical space allocation",
    "protection",
    "timeout",
    "recoverable transport",
    "device offline",
];

/// What an NVMe disk or controller reports. Each has its name in front.
const NVME_ERRORS: &[&str] = &[
    "reset controller",
    "will reset",
    "disable controller",
    "removing after probe failure",
    "disabling device after reset failure",
    "aborting reset",
    "timeout, aborting",
    "controller is down",
    "i/o error (sct",
    "unrecovered read error",
    "write fault",
    "failed to initialize",
    "could not initialize",
    "not ready; aborting",
];

/// Other messages that name their device.
const OTHER_ERRORS: &[&str] = &[
    "buffer i/o error on dev",
    "due to i/o error on",
    "aborting journal on device",
    "rejecting i/o to offline device",
    "rejecting i/o to dead device",
    "disk failure on",
    "medium error",
];

/// Messages that say it of something that ended well, or that a person requested.
const HARMLESS: &[&str] =
    &["user initiated shutdown", "unmounting filesystem", "op 0x3:(discard)", "op 0x9:(write_zeroes)"];

/// What stands in front of a device.
const DEVICE_MARKS: &[&str] =
    &["(device ", "on device ", "on dev ", ", dev ", "error on ", "failure on ", " for ", "nvme nvme", "["];

/// The device of a message about a failure: `sda1`, `dm-4`, `nvme0`; empty where it names none.
pub(super) fn failing_device(message: &str) -> Option<String> {
    let text = message.to_lowercase();
    let is_in = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_block = || {
        let kind = text.split_once(" error, dev ").map(|(head, _)| head);
        kind.is_some_and(|head| BLOCK_ERRORS.iter().any(|kind| head.ends_with(kind)))
    };
    let is_file_system = || {
        let named = FILE_SYSTEMS.iter().any(|name| text.starts_with(name));
        named && (is_in(FILE_SYSTEM_ERRORS) || is_in(LEVELS))
    };
    let is_nvme = || text.starts_with("nvme") && is_in(NVME_ERRORS);
    let is_failure = (is_block() || is_file_system() || is_nvme() || is_in(OTHER_ERRORS)) && !is_in(HARMLESS);
    // The sense data of a SCSI disk; the block layer's line about the same request counts.
    let is_detail = text.contains("sense key") || text.starts_with("btrfs info") && !text.contains("forced readonly");
    (is_failure && !is_detail).then(|| device(&text).unwrap_or_default().to_owned())
}

/// Whether a device has no medium that can fail: loop devices are files, floppy and CD drives may be empty.
pub(super) fn is_harmless(device: &str) -> bool {
    ["loop", "fd", "sr"].iter().any(|kind| {
        device.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    })
}

/// Whether a device is one of some, or a journal on one (`sda1-8`).
pub(super) fn is_of(device: &str, devices: &[String]) -> bool {
    let journal = device.rsplit_once('-').map(|(of, _)| of);
    devices.iter().any(|name| name == device || Some(name.as_str()) == journal)
}

fn device(text: &str) -> Option<&str> {
    let is_end = |char: char| !(char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '!'));
    // `XFS (dm-4): …`, `EXT4-fs (sda1): …`, and NVMe disks, which come first.
    if FILE_SYSTEMS.iter().any(|name| text.starts_with(name))
        && let Some((head, rest)) = text.split_once(" (")
        && !head.contains(' ')
        && !rest.starts_with("device ")
    {
        return rest.split(is_end).next();
    }
    if let Some(rest) = text.strip_prefix("nvme nvme") {
        let length = "nvme".len() + rest.find(is_end).unwrap_or(rest.len());
        return text.strip_prefix("nvme ")?.get(..length);
    }
    if text.starts_with("nvme") && !text.contains(", dev ") {
        return text.split(is_end).next();
    }
    let found = DEVICE_MARKS.iter().find_map(|mark| text.split_once(mark).map(|(_, rest)| rest));
    found?.trim_start_matches("/dev/").split(is_end).find(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of kernels from 3.10 to 6.12, from public reports.
    const FAILURES: &[(&str, &str)] = &[
        ("critical medium error, dev sdk, sector 130611915 op 0x0:(READ) flags 0x0 phys_seg 13 prio class 2", "sdk"),
        ("blk_update_request: critical medium error, dev sda, sector 88", "sda"),
        ("critical medium error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x0", "nvme0n1"),
        ("end_request: I/O error, dev sdb, sector 0", "sdb"),
        ("print_req_error: I/O error, dev vda, sector 1 flags 801", "vda"),
        ("critical target error, dev sda, sector 88 op 0x1:(WRITE) flags 0x0", "sda"),
        ("device offline error, dev sda, sector 88 op 0x1:(WRITE) flags 0x0", "sda"),
        ("recoverable transport error, dev sdc, sector 2 op 0x0:(READ)", "sdc"),
        ("Buffer I/O error on dev sdp, logical block 145, lost async page write", "sdp"),
        ("Buffer I/O error on device dm-3, logical block 32897", "dm-3"),
        ("lost page write due to I/O error on sda1", "sda1"),
        ("sd 2:0:0:0: [sda] rejecting I/O to offline device", "sda"),
        ("sd 2:0:0:0: rejecting I/O to offline device", ""),
        ("XFS (dm-4): I/O Error Detected. Shutting down filesystem", "dm-4"),
        ("XFS (sda1): log I/O error -5", "sda1"),
        ("XFS (sda3): Filesystem has been shut down due to log error (0x2).", "sda3"),
        ("XFS (dm-0): metadata I/O error in \"xfs_trans_read_buf_map\" at daddr 0x2 len 1 error 5", "dm-0"),
        (
            "XFS (sda1): Corruption of in-memory data (0x8) detected at xfs_defer_finish. Shutting down filesystem.",
            "sda1",
        ),
        ("XFS (nvme0n1p3): xfs_do_force_shutdown(0x2) called from line 1 of file fs/xfs/xfs_log.c.", "nvme0n1p3"),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm cp: reading directory lblock 0", "sda1"),
        ("EXT4-fs error (device sda1) in ext4_reserve_inode_write:5727: IO failure", "sda1"),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "sda1"),
        ("EXT4-fs (dm-1): I/O error while writing superblock", "dm-1"),
        (
            "EXT4-fs warning (device sdp): ext4_end_bio:345: I/O error 10 writing to inode 12 starting block 32898)",
            "sdp",
        ),
        ("Aborting journal on device sda1-8.", "sda1-8"),
        ("JBD2: Error -5 detected when updating journal superblock for sda1-8.", "sda1-8"),
        ("JBD2: I/O error when updating journal superblock for dm-0-8.", "dm-0-8"),
        ("BTRFS error (device sda2): bdev /dev/sda2 errs: wr 0, rd 12, flush 0, corrupt 3, gen 0", "sda2"),
        ("BTRFS: error (device sda2) in btrfs_commit_transaction:2494: errno=-5 IO failure", "sda2"),
        ("BTRFS: error (device sda2: state EA) in btrfs_run_delayed_refs:2153: errno=-5 IO failure", "sda2"),
        ("BTRFS info (device sda2): forced readonly", "sda2"),
        ("BTRFS critical (device dm-2): corrupt leaf, root=5 block=30408704 slot=4", "dm-2"),
        ("BTRFS warning (device sda2): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2 mirror 1", "sda2"),
        ("nvme nvme0: I/O 128 QID 2 timeout, reset controller", "nvme0"),
        (
            "nvme nvme1: I/O tag 12 (100c) opcode 0x1 (I/O Cmd) QID 3 timeout, aborting req_op:WRITE(1) size:4096",
            "nvme1",
        ),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "nvme0"),
        ("nvme nvme10: Removing after probe failure status: -19", "nvme10"),
        ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "nvme0"),
        ("nvme nvme0: Disabling device after reset failure: -19", "nvme0"),
        ("nvme0n1: I/O Cmd(0x2) @ LBA 128, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE", "nvme0n1"),
        ("md/raid1:md0: Disk failure on sdb1, disabling device.", "sdb1"),
    ];

    #[test]
    fn failures_name_their_device_in_every_spelling() {
        for (message, device) in FAILURES {
            assert_eq!(failing_device(message).as_deref(), Some(*device), "{message}");
        }
    }

    #[test]
    fn messages_without_failure_are_none() {
        for message in [
            "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
            "XFS (dm-0): Mounting V5 Filesystem",
            "XFS (sdc): Unmounting Filesystem",
            "XFS (sdc): User initiated shutdown received.",
            "XFS (sdc): Ending clean mount",
            "BTRFS info (device sda2): bdev /dev/sda2 errs: wr 0, rd 12, flush 0, corrupt 0, gen 0",
            "BTRFS info (device sda2): disk space caching is enabled",
            "operation not supported error, dev loop0, sector 0 op 0x9:(WRITE_ZEROES) flags 0x800",
            "critical target error, dev sda, sector 8 op 0x3:(DISCARD) flags 0x800",
            "sd 0:0:9:0: [sdk] tag#915 Sense Key : Medium Error [current] [descriptor]",
            "sd 0:0:1:0: [sda] Attached SCSI disk",
            "nvme nvme0: 2/0/0 default/read/poll queues",
            "nvme nvme0: pci function 0000:00:1d.0",
            "mlx5_core 0000:01:00.0: firmware version: 1",
        ] {
            assert_eq!(failing_device(message), None, "{message}");
        }
    }

    #[test]
    fn loop_devices_are_harmless_in_every_spelling() {
        for message in [
            "I/O error, dev loop3, sector 0",
            "EXT4-fs error (device loop3): ext4_find_entry:1455: inode #2",
            "XFS (loop1): Metadata corruption detected at xfs_dinode_verify+0x1 [xfs], inode 0x80 dinode",
            "Buffer I/O error on dev loop0p1, logical block 0, async page read",
            "BTRFS: error (device loop12: state A) in x: errno=-5 IO failure",
            "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ)",
            "I/O error, dev sr0, sector 0",
        ] {
            assert!(is_harmless(&failing_device(message).unwrap()), "{message}");
        }
        assert!(!is_harmless("sda") && !is_harmless("fdisk") && !is_harmless(""));
    }

    #[test]
    fn journals_belong_to_their_device() {
        let devices = ["dm-0", "sda1"].map(str::to_owned);
        assert!(is_of("dm-0", &devices) && is_of("dm-0-8", &devices) && is_of("sda1-8", &devices));
        assert!(!is_of("dm-1", &devices) && !is_of("sda", &devices) && !is_of("dm", &devices));
    }
}
