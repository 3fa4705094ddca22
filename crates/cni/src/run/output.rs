//! The answer on stdout: written once, whole, so that a buffer would only copy it.

use std::io::{self, Write};

#[derive(Debug)]
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, answer: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(rustix::stdio::stdout(), answer)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
