//! The image of a container: which files it has.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The image's files: where the container sees each, and where it is really.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub(super) files: BTreeMap<PathBuf, PathBuf>,
}

impl Image {
    /// The one that we ship, of a directory with our programs.
    pub fn of_programs(bin_dir: &Path) -> Self {
        Self::default()
            .file("/usr/local/bin/oke-node-agent", bin_dir.join("oke-node-agent"))
            .file("/usr/local/bin/oke-cni-installer", bin_dir.join("oke-cni-installer"))
            .file("/usr/libexec/vcn-native/vcn-native", bin_dir.join("vcn-native"))
            .file("/usr/libexec/vcn-native/vnic-attach", bin_dir.join("vnic-attach"))
    }

    /// With one file or directory more, or another one.
    pub fn file(mut self, inside: impl Into<PathBuf>, file: impl Into<PathBuf>) -> Self {
        self.files.insert(inside.into(), file.into());
        self
    }

    /// Whether a program needs the machine's libraries. Those that are shipped do not; those of a test run do.
    pub(super) fn is_dynamic(&self) -> io::Result<bool> {
        for file in self.files.values().filter(|file| file.is_file()) {
            // The loader's name stands in the first page.
            let mut head = Vec::with_capacity(4096);
            fs::File::open(file)?.take(4096).read_to_end(&mut head)?;
            if head.windows(LOADER.len()).any(|window| window == LOADER) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

const LOADER: &[u8] = b"/ld-linux";
