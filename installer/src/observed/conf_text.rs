//! A configuration's file: its bytes, mode and real path. A pipe, a device or a huge file is not read, and no link is
//! followed out of the directory: in a container it leads to another file than on the host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::libc;
use serde_json::{Map, Value};

/// Some programs write a configuration in place. A half-written one is read again before it is called damaged: to repair it
/// would overwrite what they are writing.
const READS: usize = 10;
const READ_EVERY: Duration = Duration::from_millis(20);

/// Longer than any configuration, in bytes.
const LONGEST: u64 = 1 << 20;

/// What has a configuration's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConfAt {
    /// Nothing.
    #[default]
    Nothing,
    /// A file, or a link within the directory to one.
    File(ConfText),
    /// A link that leads out of the directory, or to nothing, with its target.
    Link(PathBuf),
    /// It cannot be read, and why.
    Unread(String),
}

/// A configuration's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfText {
    /// Its bytes.
    pub(crate) contents: Vec<u8>,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// The file itself: of a link within the directory its target, so that the link stays.
    pub(crate) target: PathBuf,
}

impl ConfAt {
    /// Reads it, and if the file is half-written, again.
    pub(crate) fn settled(path: &Path) -> Self {
        Self::settled_by(path, || thread::sleep(READ_EVERY))
    }

    pub(super) fn settled_by(path: &Path, mut pause: impl FnMut()) -> Self {
        let mut reads = 1;
        loop {
            let found = Self::read(path);
            let half = found.file().is_some_and(|found| parse(&found.contents).is_err());
            if !half || reads == READS {
                return found;
            }
            reads += 1;
            pause();
        }
    }

    /// Reads it once.
    pub(crate) fn read(path: &Path) -> Self {
        let found = match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => Self::through(path),
            Ok(_) => read_file(path).map(Self::File),
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unread(error.to_string()),
        }
    }

    /// The file, if it is one.
    pub(crate) const fn file(&self) -> Option<&ConfText> {
        match self {
            Self::File(found) => Some(found),
            Self::Nothing | Self::Link(_) | Self::Unread(_) => None,
        }
    }

    /// Why it is not read, if something is there.
    pub(crate) fn unread(&self) -> Option<String> {
        match self {
            Self::Nothing | Self::File(_) => None,
            Self::Link(to) if to.is_absolute() || to.components().count() > 1 => {
                Some(format!("it is a link that leads out of its directory, to {}", to.display()))
            }
            Self::Link(to) => Some(format!("it is a link to {}, which does not exist", to.display())),
            Self::Unread(why) => Some(why.clone()),
        }
    }

    /// Whether it is a link, at `path`, to a name in the same directory that does not exist.
    pub(crate) fn leads_nowhere(&self, path: &Path) -> bool {
        let Self::Link(to) = self else { return false };
        let within = matches!(to.components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
        let there = fs::symlink_metadata(path.with_file_name(to));
        within && there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    fn through(link: &Path) -> io::Result<Self> {
        let says = fs::read_link(link)?;
        let within = |target: &Path| Some(target.parent()? == link.parent()?.canonicalize().ok()?);
        match link.canonicalize() {
            Ok(target) if within(&target) == Some(true) => read_file(&target).map(Self::File),
            _ => Ok(Self::Link(says)),
        }
    }
}

impl ConfText {
    /// The document, if it has an array of plugins, each with a type.
    pub(crate) fn list(&self) -> Option<Map<String, Value>> {
        let Value::Object(document) = parse(&self.contents).ok()? else { return None };
        let plugins = document.get("plugins")?.as_array()?;
        plugins.iter().all(|plugin| kind(plugin).is_some()).then_some(document)
    }
}

/// JSON as the runtime reads it: Go replaces what is not UTF-8.
pub(crate) fn parse(contents: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_str(&String::from_utf8_lossy(contents))
}

/// A plugin's type. Go finds a key in any case, and an empty type is none.
pub(crate) fn kind(plugin: &Value) -> Option<&str> {
    let plugin = plugin.as_object()?;
    let folded = || plugin.iter().rfind(|(key, _)| key.eq_ignore_ascii_case("type")).map(|(_, value)| value);
    plugin.get("type").or_else(folded)?.as_str().filter(|kind| !kind.is_empty())
}

fn read_file(target: &Path) -> io::Result<ConfText> {
    // A pipe must not block.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(target)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is a directory or special file; move it away"));
    }
    let mut contents = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes; move it away")));
    }
    Ok(ConfText { contents, mode: metadata.permissions().mode() & 0o7777, target: target.to_owned() })
}
