//! The job: what to run. A file of NUL-ended records `KEY VALUE`, because variables and arguments may hold anything else.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What `tests/uml/run` asks for.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// Where the kernel's modules are, with their `modules.dep`.
    pub(crate) module_dir: PathBuf,
    /// The modules to load first.
    pub(crate) modules: Vec<String>,
    /// The program's working directory.
    pub(crate) directory: PathBuf,
    /// Its environment, whole.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

impl Job {
    /// Reads a job file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let records = std::fs::read(path).with_context(|| format!("read the job {}", path.display()))?;
        let mut job = Self::default();
        for record in records.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
            job.add(record)?;
        }
        Ok(job)
    }

    fn add(&mut self, record: &[u8]) -> Result<()> {
        let Some((key, value)) = split_once(record, b' ') else {
            bail!("a record without a value: {}", String::from_utf8_lossy(record));
        };
        let text = || String::from_utf8(value.to_vec()).context("a record that is no text");
        match key {
            b"module-dir" => self.module_dir = text()?.into(),
            b"module" => self.modules.push(text()?),
            b"directory" => self.directory = text()?.into(),
            b"argument" => self.command.push(text()?),
            b"variable" => {
                if let Some((name, value)) = split_once(value, b'=') {
                    self.environment.push((os(name), os(value)));
                }
            }
            _ => bail!("an unknown record: {}", String::from_utf8_lossy(record)),
        }
        Ok(())
    }
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_finds_its_place() {
        let mut job = Job::default();
        for record in
            ["module-dir /m", "module 8021q", "directory /", "variable A=b=c\nd", "argument x", "argument y z"]
        {
            job.add(record.as_bytes()).unwrap();
        }
        assert_eq!(job.command, ["x", "y z"]);
        assert_eq!(job.environment, [("A".into(), "b=c\nd".into())]);
        assert_eq!((job.module_dir, job.modules), ("/m".into(), vec!["8021q".to_owned()]));
    }

    #[test]
    fn an_unknown_record_is_refused() {
        assert!(Job::default().add(b"color red").is_err());
        assert!(Job::default().add(b"module").is_err());
    }
}
