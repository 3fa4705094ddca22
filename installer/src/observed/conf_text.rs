//! A configuration's file: its bytes and mode. A pipe, a device or a huge file is not read. Our own file is never a link, and
//! another program's link is not followed out of the directory: in a container it leads to another file than on the host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::libc;
use serde_json::Value;

use crate::files::{MAX_CONFIGURATION, irregular};
use crate::libcni::{PLUGINS, kind};

/// Some programs write a configuration in place. A half-written one is read again before it is called damaged: to repair it
/// would overwrite what they are writing.
const READS: usize = 10;
const READ_EVERY: Duration = Duration::from_millis(20);

/// What has a configuration's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConfAt {
    #[default]
    Nothing,
    File(ConfText),
    /// It is not read, and why.
    Unread(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfText {
    pub(crate) contents: Vec<u8>,
    pub(crate) mode: u32,
    /// Its document, or why it is none.
    pub(crate) json: Result<Value, String>,
}

impl ConfAt {
    /// Reads one of our files, and if it is half-written, again.
    pub(crate) fn settled(path: &Path) -> Self {
        Self::settled_by(|| Self::ours(path))
    }

    pub(super) fn settled_by(read: impl Fn() -> Self) -> Self {
        for _ in 1..READS {
            let found = read();
            if found.file().is_none_or(|found| found.json.is_ok()) {
                return found;
            }
            thread::sleep(READ_EVERY);
        }
        read()
    }

    /// Reads one of our files once. A link with its name is a person's or another program's, and stays.
    pub(crate) fn ours(path: &Path) -> Self {
        if path.is_symlink() { Self::Unread(irregular(path)) } else { Self::any(path) }
    }

    /// Reads a file once, also by a link within its directory.
    pub(super) fn any(path: &Path) -> Self {
        let found = match fs::read_link(path) {
            Ok(to) if !stays_within(path) => {
                return Self::Unread(format!("it is a link to {}, out of its directory or to nothing", to.display()));
            }
            _ => read_file(path),
        };
        match found {
            Ok(found) => Self::File(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unread(error.to_string()),
        }
    }

    pub(crate) const fn file(&self) -> Option<&ConfText> {
        match self {
            Self::File(found) => Some(found),
            Self::Nothing | Self::Unread(_) => None,
        }
    }
}

impl ConfText {
    /// JSON as the runtime reads it: Go replaces what is not UTF-8.
    pub(crate) fn new(contents: Vec<u8>, mode: u32) -> Self {
        let json = serde_json::from_str(&String::from_utf8_lossy(&contents)).map_err(|error| error.to_string());
        Self { contents, mode, json }
    }

    /// The document, if it has an array of plugins.
    pub(crate) fn list(&self) -> Option<&Value> {
        self.json.as_ref().ok().filter(|document| document.get(PLUGINS).is_some_and(Value::is_array))
    }

    /// Whether it is damaged, as after a power cut: no other program writes such a file, so it was one of our files.
    pub(crate) fn is_damaged(&self) -> bool {
        !matches!(self.json, Ok(Value::Object(_)))
    }

    /// Whether it is a list with a plugin of one of these types.
    pub(crate) fn lists(&self, kinds: &[&str]) -> bool {
        self.list().is_some_and(|list| plugins(list).filter_map(kind).any(|kind| kinds.contains(&kind)))
    }
}

pub(crate) fn plugins(list: &Value) -> impl Iterator<Item = &Value> {
    list.get(PLUGINS).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a link leads to a file of its own directory.
pub(super) fn stays_within(link: &Path) -> bool {
    let within = |target: &Path| Some(target.parent()? == link.parent()?.canonicalize().ok()?);
    link.canonicalize().is_ok_and(|target| within(&target) == Some(true))
}

fn read_file(path: &Path) -> io::Result<ConfText> {
    // A pipe must not block.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(irregular(path)));
    }
    let mut contents = Vec::new();
    file.take(MAX_CONFIGURATION + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > MAX_CONFIGURATION {
        return Err(io::Error::other(format!("it is longer than {MAX_CONFIGURATION} bytes; move it away")));
    }
    Ok(ConfText::new(contents, metadata.permissions().mode() & 0o7777))
}
