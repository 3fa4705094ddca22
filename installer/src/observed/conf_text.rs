//! A configuration that we may write: its bytes, its mode, and where it really is.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::de::IgnoredAny;

use crate::Error;

/// Some write a configuration in place. What is found half-written is looked at again, so often and after so long, before
/// it is called damaged: to put it right would be to throw away what they are writing.
const LOOKS: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);

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

impl ConfText {
    /// Reads it; `None` where there is none, or a link that leads nowhere: that is then replaced.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Error> {
        let mut looks = 1;
        loop {
            let found = Self::look(path)?;
            let whole =
                found.as_ref().is_none_or(|found| serde_json::from_slice::<IgnoredAny>(&found.contents).is_ok());
            if whole || looks == LOOKS {
                return Ok(found);
            }
            looks += 1;
            thread::sleep(LOOK_EVERY);
        }
    }

    fn look(path: &Path) -> Result<Option<Self>, Error> {
        let read = || {
            let target = path.canonicalize()?;
            let mode = fs::metadata(&target)?.permissions().mode() & 0o7777;
            Ok::<_, io::Error>(Self { contents: fs::read(&target)?, mode, target })
        };
        match read() {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Read { path: path.to_owned(), source }),
        }
    }

    /// As text; `None` where it is none.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.contents).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_in_place_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("05-vcn-native.conflist");
        fs::write(&path, "{\"plugins\": [").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(LOOK_EVERY * 2);
                fs::write(&path, "{\"plugins\": []}").unwrap();
            });
            let found = ConfText::read(&path).unwrap().unwrap();
            assert_eq!(found.text(), Some("{\"plugins\": []}"));
        });
    }

    #[test]
    fn what_stays_half_is_taken_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("05-vcn-native.conflist");
        fs::write(&path, [b'{', 0xff]).unwrap();
        let found = ConfText::read(&path).unwrap().unwrap();
        assert_eq!((found.contents.as_slice(), found.text()), (&[b'{', 0xff][..], None));
        assert_eq!(ConfText::read(Path::new("/nowhere/at/all")).unwrap(), None);
    }
}
