//! What is at a configuration's place: its bytes, its mode, and where it really is. Nothing is read that could make us wait
//! (a pipe) or eat memory (a device, a huge file), and no link is followed out of the directory: in a container it leads to
//! another file than on the host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::libc;
use serde::de::IgnoredAny;

/// Some write a configuration in place. What is found half-written is looked at again, so often and after so long, before
/// it is called damaged: to put it right would be to throw away what they are writing.
const LOOKS: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Longer than any configuration; more is not read.
const LONGEST: u64 = 1 << 20;

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Nothing.
    Nothing,
    /// A file, or a link within the directory to one.
    File(ConfText),
    /// A link that leads out of the directory, or to nothing, and what it says.
    Link(PathBuf),
    /// What is not read, and why.
    Unread(String),
}

/// A configuration's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfText {
    /// Its bytes.
    pub(crate) contents: Vec<u8>,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// The file itself: where it is a link, what that leads to, so that the link stays one.
    pub(crate) target: PathBuf,
}

impl At {
    /// Looks, and where the file is half-written, again.
    pub(crate) fn settled(path: &Path) -> Self {
        Self::settled_by(path, || thread::sleep(LOOK_EVERY))
    }

    fn settled_by(path: &Path, mut pause: impl FnMut()) -> Self {
        let mut looks = 1;
        loop {
            let found = Self::look(path);
            let half = found.file().is_some_and(|found| serde_json::from_slice::<IgnoredAny>(&found.contents).is_err());
            if !half || looks == LOOKS {
                return found;
            }
            looks += 1;
            pause();
        }
    }

    /// Looks once.
    pub(crate) fn look(path: &Path) -> Self {
        let found = match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => Self::through(path),
            Ok(_) => read(path).map(Self::File),
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unread(error.to_string()),
        }
    }

    /// The file, where it is one.
    pub(crate) const fn file(&self) -> Option<&ConfText> {
        match self {
            Self::File(found) => Some(found),
            Self::Nothing | Self::Link(_) | Self::Unread(_) => None,
        }
    }

    /// Why it is not read, where something is there.
    pub(crate) fn unread(&self) -> Option<String> {
        match self {
            Self::Nothing | Self::File(_) => None,
            Self::Link(to) if to.is_absolute() || to.components().count() > 1 => {
                Some(format!("it is a link that leads out of its directory, to {}", to.display()))
            }
            Self::Link(to) => Some(format!("it is a link to {}, which is not there", to.display())),
            Self::Unread(why) => Some(why.clone()),
        }
    }

    /// Whether it is a link to a name of the directory of `path`, where it was found, that nothing has.
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
            Ok(target) if within(&target) == Some(true) => read(&target).map(Self::File),
            _ => Ok(Self::Link(says)),
        }
    }
}

impl ConfText {
    /// As text; `None` where it is none.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.contents).ok()
    }
}

fn read(target: &Path) -> io::Result<ConfText> {
    // Not to wait for somebody to write into a pipe.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_is_being_written_in_place_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("05-vcn-native.conflist");
        fs::write(&path, "{\"plugins\": [").unwrap();
        let mut pauses = 0;
        let found = At::settled_by(&path, || {
            pauses += 1;
            if pauses == LOOKS - 1 {
                fs::write(&path, "{\"plugins\": []}").unwrap();
            }
        });
        assert_eq!(found.file().unwrap().text(), Some("{\"plugins\": []}"));
    }

    #[test]
    fn what_stays_half_is_taken_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("05-vcn-native.conflist");
        fs::write(&path, [b'{', 0xff]).unwrap();
        let found = At::settled(&path);
        let found = found.file().unwrap();
        assert_eq!((found.contents.as_slice(), found.text()), (&[b'{', 0xff][..], None));
        assert_eq!(At::settled(Path::new("/nowhere/at/all")), At::Nothing);
    }

    #[test]
    fn links_are_followed_within_the_directory_only() {
        let place = tempfile::tempdir().unwrap();
        let (directory, outside) = (place.path().join("net.d"), place.path().join("outside"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("real"), "{}").unwrap();
        fs::write(&outside, "{}").unwrap();
        let link = directory.join("05-vcn-native.conflist");
        let look = |to: &Path| {
            let _ = fs::remove_file(&link);
            symlink(to, &link).unwrap();
            At::look(&link)
        };
        for to in [Path::new("real"), Path::new("../net.d/real"), &directory.join("real")] {
            let target = directory.canonicalize().unwrap().join("real");
            assert_eq!(look(to).file().map(|found| found.target.clone()), Some(target), "{}", to.display());
        }
        for (to, said) in [
            (outside.as_path(), "leads out of its directory"),
            (Path::new("../outside"), "leads out of its directory"),
            (Path::new("nothing"), "which is not there"),
            (Path::new("05-vcn-native.conflist"), "which is not there"),
        ] {
            let found = look(to);
            assert_eq!(found, At::Link(to.to_owned()));
            assert!(found.unread().unwrap().contains(said), "{found:?}");
        }
    }

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, folder, huge) =
            (directory.path().join("pipe"), directory.path().join("folder"), directory.path().join("huge"));
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        fs::create_dir(&folder).unwrap();
        File::create(&huge).unwrap().set_len(LONGEST + 1).unwrap();
        for (path, said) in [(pipe, "special file"), (folder, "directory"), (huge, "longer than 1048576 bytes")] {
            let found = At::look(&path);
            assert!(found.unread().is_some_and(|why| why.contains(said)), "{found:?}");
        }
    }
}
