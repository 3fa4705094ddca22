//! Grows the root disk as Oracle's documentation describes it. The disk is read again, and oci-growfs grows partition, volume and
//! file system. Then the kubelet restarts, because it reads its capacity only when it starts. The controller proves it by the
//! Node's capacity.

mod layers;

use std::time::Duration;

use api::TaskReason;
use api::operation::OperationReport;
use systemd::Systemd;

use self::layers::{Layers, SIZES};
use super::shell::{Output, last_line, run, run_alone};
use super::{Failure, restart};

const KUBELET: &str = "kubelet.service";
/// Reads the size of each disk below the root file system again: SCSI disks do not report a change.
const RESCAN: &str = r#"
for disk in $(lsblk --inverse --noheadings --list --output KNAME,TYPE "$(findmnt --noheadings --output SOURCE /)" | sed -n 's/ *disk$//p'); do
    rescan=/sys/class/block/$disk/device/rescan
    [ ! -e "$rescan" ] || echo 1 >"$rescan"
done"#;
const GROW: [&str; 2] = ["/usr/libexec/oci-growfs", "-y"];
/// The size of the kubelet's file system: bytes of a block, blocks.
const SIZE: [&str; 4] = ["/usr/bin/stat", "--file-system", "--format=%S %b", "/var/lib/kubelet"];
/// For a rescan and for reading a size.
const SHORT: Duration = Duration::from_secs(30);
/// A file system grows in seconds; a volume group with many extents takes longer.
const LONG: Duration = Duration::from_mins(5);

/// Grows the root disk and restarts the kubelet.
pub(super) async fn grow(systemd: &Systemd) -> Result<OperationReport, Failure> {
    let before = size(systemd).await?;
    run(systemd, "rescan", &["/bin/sh", "-c", RESCAN], SHORT).await?.success("the rescan of the root disk")?;
    let output = run_alone(systemd, "growfs", &GROW, LONG).await?;
    let after = size(systemd).await?;
    let report =
        |reason, message: &str| OperationReport { file_system: Some(after), ..OperationReport::new(reason, message) };
    if after <= before {
        explain(systemd, output).await?;
        let message = "there is no free space behind the root file system: nothing was changed";
        return Ok(report(TaskReason::NotGrown, message));
    }
    // What counts is the file system, whatever oci-growfs says.
    restart::restart(systemd, KUBELET).await?;
    Ok(report(TaskReason::Succeeded, &format!("the file system grew by {} bytes to {after}", after - before)))
}

/// Why the file system did not grow. Succeeds only if growpart found no free space and each layer uses the whole layer below it.
///
/// # Errors
/// When oci-growfs failed, or an earlier growth stopped halfway.
async fn explain(systemd: &Systemd, output: Output) -> Result<(), Failure> {
    let failed = |message: String| Failure { reason: TaskReason::OperationFailed, message };
    if !output.has_nothing_to_grow() {
        let last = output.success("oci-growfs")?;
        return Err(failed(format!("oci-growfs succeeded, but the file system did not grow: {}", last_line(&last))));
    }
    let sizes =
        run(systemd, "sizes", &["/bin/sh", "-c", SIZES], SHORT).await?.success("reading the sizes of the layers")?;
    let layers = Layers::read(&sizes).ok_or_else(|| {
        failed(format!("growpart found no free space; the sizes of the layers are unknown: {}", last_line(&sizes)))
    })?;
    layers.gap().map_or(Ok(()), |gap| Err(failed(format!("an earlier growth stopped halfway: {gap}"))))
}

async fn size(systemd: &Systemd) -> Result<u64, Failure> {
    let text = run(systemd, "size", &SIZE, SHORT).await?.success("stat of /var/lib/kubelet")?;
    bytes(&text).ok_or_else(|| Failure {
        reason: TaskReason::OperationFailed,
        message: format!("stat of /var/lib/kubelet printed {text:?}"),
    })
}

/// `4096 26214400` as bytes.
fn bytes(text: &str) -> Option<u64> {
    let (block, blocks) = text.trim().split_once(' ')?;
    block.parse::<u64>().ok()?.checked_mul(blocks.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_the_product_of_block_and_blocks() {
        assert_eq!(bytes("4096 26214400\n"), Some(107_374_182_400));
        for text in ["", "4096", "4096 x", "18446744073709551615 2"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
