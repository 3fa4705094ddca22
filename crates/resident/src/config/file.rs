//! The configuration file: lines of `KEY=value`.
//!
//! Keys and values are the same as in the environment, so there is one way to write them. The key/value strings of an OKE add-on
//! become such lines without quoting; `kubectl create configmap --from-env-file` and systemd read them, too. No character of a
//! value is special, so it may be JSON. YAML would read `yes`, `0x10` and `1e3` as something other than the given strings.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::{GivenValue, Place, Problem};

/// No configuration is this long, and a ConfigMap cannot be longer.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The most lines that set a key; there are fewer keys.
const MAX_KEYS: usize = 1000;

/// All of a file.
///
/// # Errors
/// When it cannot be read, is longer than 1 MiB, or is not a regular file (reading a pipe could block forever).
pub fn read(path: &Path) -> io::Result<String> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return refused("it is not a regular file");
    }
    let mut text = String::new();
    if file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_FILE_BYTES {
        return refused("it is longer than 1 MiB");
    }
    Ok(text)
}

/// The values that a text sets, and its lines that are not understood.
pub fn parse(path: &Path, text: &str) -> (Vec<(String, GivenValue)>, Vec<Problem>) {
    let (mut given, mut problems) = (Vec::<(String, GivenValue)>::new(), Vec::new());
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let place = Place::File { path: path.to_owned(), line: number + 1 };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if given.len() + problems.len() >= MAX_KEYS {
            problems.push(Problem::new(place, "", format!("more than {MAX_KEYS} lines: the rest was not read")));
            break;
        }
        // No key is this long.
        let Some((key, value)) = line.split_once('=').filter(|(key, _)| key.len() <= 64) else {
            let shown: String = line.chars().take(40).collect();
            problems.push(Problem::new(place, "", format!("{shown:?} is not KEY=value")));
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if given.iter().any(|(other, _)| other == key) {
            problems.push(Problem::new(place, key, "is set twice"));
        } else if is_quoted(value) {
            let text = format!("is {value}: values are taken as they are, so leave the quotes out");
            problems.push(Problem::new(place, key, text));
        } else {
            given.push((key.to_owned(), GivenValue { value: value.to_owned(), place }));
        }
    }
    (given, problems)
}

/// No key has a value that begins and ends like this.
fn is_quoted(value: &str) -> bool {
    ['"', '\''].into_iter().any(|quote| value.len() > 1 && value.starts_with(quote) && value.ends_with(quote))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn binary_special_or_oversized_file_is_refused_immediately() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.conf");
        let refused = || read(&path).unwrap_err().to_string();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(refused(), "it is not a regular file");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(refused(), "it is not a regular file");
        fs::remove_file(&path).unwrap();
        fs::write(&path, [b'K', b'=', 0xff, 0xfe, 0]).unwrap();
        assert!(refused().contains("UTF-8"), "{}", refused());
        fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1 << 20);
        fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
        assert_eq!(refused(), "it is longer than 1 MiB");
    }
}
