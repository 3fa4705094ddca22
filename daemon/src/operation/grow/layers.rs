//! The layers between the root disk's partition and its file system: whether a growth that stopped halfway left one of them smaller than
//! what is below it. growpart then finds no free space, and oci-growfs goes no further.

/// Prints the sizes of the layers, one line each, in bytes. The host may have no LVM.
pub(super) const SIZES: &str = r#"
source=$(findmnt --noheadings --output SOURCE /)
lsblk --nodeps --bytes --noheadings --list --output SIZE "$source" | sed 's/^ */device /'
case $(findmnt --noheadings --output FSTYPE /) in
xfs) xfs_info / | sed -n 's/^data .*bsize=\([0-9]*\) *blocks=\([0-9]*\),.*/filesystem \1 \2/p' ;;
ext*) dumpe2fs -h "$source" 2>&1 | sed -n 's/^Block count: */blocks /p; s/^Block size: */block /p' ;;
esac
group=$(lvs --noheadings --options vg_name "$source" 2>/dev/null) || exit 0
pvs --noheadings --units b --nosuffix --options pv_name,dev_size,pv_size,vg_extent_size,vg_name,vg_free --select "vg_name=$(echo $group)" |
    sed 's/^ */physical /'"#;

/// Less than this is left over where sizes are rounded and metadata lie.
const LEFT_OVER: u64 = 64 << 20;

/// The sizes of device, volumes and file system, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// Of the file system's device.
    device: u64,
    file_system: u64,
    volumes: Vec<PhysicalVolume>,
}

/// A partition that is a physical volume, and its volume group.
#[derive(Debug, PartialEq, Eq)]
struct PhysicalVolume {
    name: String,
    partition: u64,
    size: u64,
    extent: u64,
    group: String,
    group_free: u64,
}

impl Layers {
    /// From the output of [`SIZES`]; `None` if it does not have the sizes of device and file system.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut layers = Self::default();
        let (mut block, mut blocks) = (0_u64, 0_u64);
        for line in text.lines() {
            match *line.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["device", size] => layers.device = size.parse().ok()?,
                ["filesystem", size, count] => (block, blocks) = (size.parse().ok()?, count.parse().ok()?),
                ["block", size] => block = size.parse().ok()?,
                ["blocks", count] => blocks = count.parse().ok()?,
                ["physical", name, partition, size, extent, group, free] => layers.volumes.push(PhysicalVolume {
                    name: name.to_owned(),
                    partition: partition.parse().ok()?,
                    size: size.parse().ok()?,
                    extent: extent.parse().ok()?,
                    group: group.to_owned(),
                    group_free: free.parse().ok()?,
                }),
                _ => {}
            }
        }
        layers.file_system = block.checked_mul(blocks)?;
        (layers.device > 0 && layers.file_system > 0).then_some(layers)
    }

    /// The lowest layer that does not use what is below it, with the command that grows it.
    pub(super) fn gap(&self) -> Option<String> {
        let is_gap = |larger: u64, smaller: u64, rounding: u64| larger.saturating_sub(smaller) > LEFT_OVER + rounding;
        for volume in &self.volumes {
            if is_gap(volume.partition, volume.size, volume.extent) {
                let sizes = format!("{} of {}", mebibytes(volume.size), mebibytes(volume.partition));
                return Some(format!("physical volume {0} uses {sizes}: run `pvresize {0}`", volume.name));
            }
            if is_gap(volume.group_free, 0, volume.extent) {
                let free = mebibytes(volume.group_free);
                return Some(format!("volume group {} has {free} free: run `lvextend -r -l +100%FREE`", volume.group));
            }
        }
        is_gap(self.device, self.file_system, 0).then(|| {
            let sizes = format!("{} of {}", mebibytes(self.file_system), mebibytes(self.device));
            format!("the file system uses {sizes}: run `xfs_growfs /`")
        })
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of Oracle Linux on a disk of 100 GiB, before and after its growth.
    fn lvm(partition: u64, volume: u64, free: u64, device: u64, blocks: u64) -> Layers {
        let text = format!(
            "device {device}\nfilesystem 4096 {blocks}\nphysical /dev/sda3 {partition} {volume} 4194304 ocivolume {free}\n"
        );
        Layers::read(&text).unwrap()
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn layers_that_agree_have_no_gap() {
        let extents = 90 * GIB - (4 << 20);
        assert_eq!(lvm(90 * GIB, extents, 0, 80 * GIB, 80 * GIB / 4096).gap(), None);
        assert_eq!(lvm(90 * GIB, extents, 12 << 20, 80 * GIB, 80 * GIB / 4096 - 100).gap(), None);
        let plain = Layers::read("device 53687091200\nblocks 13107200\nblock 4096\n").unwrap();
        assert_eq!(plain, Layers { device: 50 * GIB, file_system: 50 * GIB, volumes: Vec::new() });
        assert_eq!(plain.gap(), None);
    }

    #[test]
    fn growth_that_stopped_names_its_layer_and_the_command() {
        let blocks = 36 * GIB / 4096;
        let gap = |layers: Layers| layers.gap().unwrap();
        let after_growpart = gap(lvm(90 * GIB, 45 * GIB, 0, 36 * GIB, blocks));
        assert_eq!(after_growpart, "physical volume /dev/sda3 uses 46080 MiB of 92160 MiB: run `pvresize /dev/sda3`");
        let after_pvresize = gap(lvm(90 * GIB, 90 * GIB - (4 << 20), 45 * GIB, 36 * GIB, blocks));
        assert_eq!(after_pvresize, "volume group ocivolume has 46080 MiB free: run `lvextend -r -l +100%FREE`");
        let after_lvextend = gap(lvm(90 * GIB, 90 * GIB - (4 << 20), 0, 81 * GIB, blocks));
        assert_eq!(after_lvextend, "the file system uses 36864 MiB of 82944 MiB: run `xfs_growfs /`");
    }

    #[test]
    fn sizes_that_are_missing_or_no_numbers_are_unknown() {
        for text in [
            "",
            "device 100\n",
            "filesystem 4096 100\n",
            "device x\nfilesystem 4096 100\n",
            "device 100\nfilesystem 4096 18446744073709551615\n",
            "device 100\nfilesystem 4096 1\nphysical /dev/sda3 1 1 x ocivolume 0\n",
        ] {
            assert_eq!(Layers::read(text), None, "{text}");
        }
    }
}
