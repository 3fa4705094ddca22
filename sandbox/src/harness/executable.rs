//! Programs that a test writes and starts at once. The kernel does not start a file that is open for writing (ETXTBSY), and a
//! forked child has all descriptors of its parent until it execs. If a process starts programs on many threads, a child may still
//! hold a file open that a thread has just written and closed. So another process writes them, which forks nothing.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{ErrorContext, Result};

/// Replaces the file whole: a reader sees the old or the new one.
const SCRIPT: &str = r#"cat >"$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0""#;

/// Writes an executable file, or replaces it.
pub fn write_program(path: &Path, content: &[u8]) -> Result<()> {
    written(path, Stdio::piped(), content).during(|| format!("write the program {}", path.display()))
}

/// Copies an executable file, or replaces it.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let copied = File::open(from).and_then(|file| written(to, file.into(), b""));
    copied.during(|| format!("copy the program {} to {}", from.display(), to.display()))
}

fn written(path: &Path, input: Stdio, content: &[u8]) -> io::Result<()> {
    let mut writer = Command::new("/bin/sh").args(["-c", SCRIPT]).arg(path).stdin(input).spawn()?;
    let sent = writer.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(content));
    let status = writer.wait()?;
    sent?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("its writer ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// Of files that this process writes itself, some do not start.
    #[test]
    fn a_program_starts_at_once_while_other_threads_fork() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        Command::new("/bin/true").status().unwrap();
                    }
                });
            }
            for round in 0..50 {
                write_program(&path, format!("#!/bin/sh\necho {round}\n").as_bytes()).unwrap();
                let output = Command::new(&path).output();
                ended.store(round == 49 || output.is_err(), Ordering::Relaxed);
                assert_eq!(output.unwrap().stdout, format!("{round}\n").as_bytes());
            }
        });
    }
}
