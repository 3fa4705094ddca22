//! Open files of the whole host.

use super::{MINUTE, NOTHING};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "open_files",
    every: MINUTE,
    privilege: NOTHING,
    make: || Box::new(OpenFiles),
    signals: &[Signal {
        name: "open_files",
        unit: Unit::Percent,
        source: "`/proc/sys/fs/file-nr`",
        why: "At the bound no program on the host can open a file or a connection.",
        remedy: "Find the program that leaks (`ls /proc/*/fd | wc -l`), or raise `fs.file-max`.",
    }],
};

struct OpenFiles;

impl Collector for OpenFiles {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let text = host.proc("sys/fs/file-nr")?;
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [open, _, most] = numbers.as_slice() else {
            return Err(Gap::unknown("/proc/sys/fs/file-nr has not three numbers"));
        };
        sample.value("open_files", 100.0 * open / most.max(1.0), format!("{open} of {most:.0} open files"));
        Ok(())
    }
}
