//! Our binaries: each is compared with its source, and put in place if it differs.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;

use super::Applier;
use crate::error::Error;
use crate::files::{irregular, is_our_plugin, replace, same_contents};
use crate::record::backup::Backup;
use crate::settings::{MAIN, VNIC_ATTACH};

const MODE: u32 = 0o755;

impl Applier<'_> {
    pub(super) fn binaries(&mut self) {
        let install = self.report.decision.install;
        for (name, is_placed) in [(MAIN, install), (VNIC_ATTACH, self.settings.places_vnic_attach(install))] {
            if is_placed {
                let placed = self.binary(name);
                self.binaries_in_place &= *placed.as_ref().unwrap_or(&false);
                self.report.failures.extend(placed.err());
            }
        }
    }

    /// Puts a binary in place; whether it is there, or would be after a dry run.
    pub(super) fn binary(&mut self, name: &str) -> Result<bool, Error> {
        let (source, target) = (self.settings.source_dir.join(name), self.settings.cni_bin_dir.join(name));
        let open = || File::open(&source).map_err(|cause| Error::Source { path: source.clone(), source: cause });
        let (file, reading) = (open()?, Error::reading(&target));
        let found = match fs::symlink_metadata(&target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(reading(error)),
            // A link may lead to the right file in this container and to no file on the host.
            Ok(found) if !found.is_file() => return Err(Error::InTheWay { reason: irregular(&target), path: target }),
            Ok(found) => Some(found.permissions().mode() & 0o7777),
        };
        if let Some(mode) = found
            && same_contents(file, File::open(&target).map_err(&reading)?).map_err(&reading)?
        {
            let text = format!("chmod {MODE:04o} {} (was {mode:04o})", target.display());
            // A mode is set without free space.
            let set = || fs::set_permissions(&target, Permissions::from_mode(MODE));
            let set = |_: &mut Self| set().map_err(Error::placing(&target, "setting its mode"));
            return Ok(mode == MODE || self.step(text, set));
        }
        let verb = if found.is_some() { "replace" } else { "install" };
        let text = format!("{verb} {} from {}", target.display(), source.display());
        Ok(self.step(text, |applier| {
            let contents = open()?;
            if found.is_some() && !is_our_plugin(&target).map_err(&reading)? {
                Backup::make(&target, name, &applier.settings.data_dir)?;
            }
            replace(&target, contents, MODE, |_| Ok(()))
        }))
    }
}
