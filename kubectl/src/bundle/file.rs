//! The file of a bundle: private, and complete or absent. Standard output has no such promise.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// A tar that is being written.
pub(crate) struct TarFile {
    out: Box<dyn Write>,
    /// The unfinished file; it goes with this. None is standard output.
    unfinished: Option<Unfinished>,
    bytes: u64,
}

struct Unfinished {
    path: PathBuf,
    target: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Renamed after success; nothing else can be done about a failure here.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a path is standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl TarFile {
    pub(crate) fn create(target: &Path) -> anyhow::Result<Self> {
        if is_stdout(target) {
            if io::stdout().is_terminal() {
                bail!("a tar cannot be written to a terminal: name a file with --file, or redirect the output");
            }
            return Ok(Self { out: Box::new(io::stdout().lock()), unfinished: None, bytes: 0 });
        }
        let mut name = target.file_name().with_context(|| format!("{} is not a file", target.display()))?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file: File = options.open(&path).with_context(|| format!("creating {}", path.display()))?;
        let unfinished = Some(Unfinished { path, target: target.to_owned() });
        Ok(Self { out: Box::new(file), unfinished, bytes: 0 })
    }

    /// Appends a whole entry below the bundle's folder.
    pub(crate) fn entry(&mut self, path: &str, content: &[u8]) -> anyhow::Result<()> {
        self.append(&stream::entry(&format!("bundle/{path}"), content).with_context(|| format!("naming {path}"))?)
    }

    /// Appends bytes of a tar.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).with_context(|| match &self.unfinished {
            Some(Unfinished { path, .. }) => format!("writing {}", path.display()),
            None => "writing to standard output".to_owned(),
        })
    }

    /// Ends the tar; the file gets its name. Returns its length in bytes.
    pub(crate) fn finish(mut self) -> anyhow::Result<u64> {
        self.append(&stream::end())?;
        self.out.flush().context("writing the end of the bundle")?;
        drop(self.out);
        if let Some(unfinished) = self.unfinished {
            let Unfinished { path, target } = &unfinished;
            fs::rename(path, target).with_context(|| format!("naming {}", target.display()))?;
        }
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn file_is_private_and_complete_or_absent() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = std::env::temp_dir().join(format!("bundle-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let target = folder.join("bundle.tar");
        fs::write(&target, "an earlier bundle").unwrap();
        let names = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let mut file = TarFile::create(&target).unwrap();
        file.entry("a.txt", b"content").unwrap();
        assert_eq!(names().len(), 2);
        drop(file);
        assert_eq!((names(), fs::read(&target).unwrap()), (vec!["bundle.tar".into()], b"an earlier bundle".to_vec()));
        let mut file = TarFile::create(&target).unwrap();
        file.entry("a.txt", b"content").unwrap();
        assert_eq!(file.finish().unwrap(), 512 + 512 + 1024);
        assert_eq!(names(), ["bundle.tar"]);
        let found = fs::metadata(&target).unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (2048, 0o600));
        fs::remove_dir_all(&folder).unwrap();
        assert!(TarFile::create(&target).is_err());
    }
}
