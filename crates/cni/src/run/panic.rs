//! A panic is a defect, and still the runtime gets one error that it can read. The release build aborts on a panic, so
//! this is done in the hook, which runs before that.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Error, ErrorCode, Version};

/// Whether a reply is on stdout already, or being written: never a second one.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// The configuration's version, as an index into `Version::ALL`; past its end until it is known.
static VERSION: AtomicUsize = AtomicUsize::new(usize::MAX);

/// From now on a panic, in whatever thread, becomes a reply with [`ErrorCode::INTERNAL`] and the end of the process.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|panic| answer_and_exit(panic)));
}

/// A panic's reply will carry this version.
pub(crate) fn note_version(version: Version) {
    VERSION.store(version as usize, Ordering::Relaxed);
}

/// From now on a panic only ends the process.
pub(crate) fn note_answered() {
    ANSWERED.store(true, Ordering::Relaxed);
}

#[expect(
    clippy::exit,
    reason = "no caller is left to return to; abort would make a core dump instead of an exit status"
)]
fn answer_and_exit(panic: &std::panic::PanicHookInfo<'_>) -> ! {
    let what = panic.payload_as_str().unwrap_or("a panic without a message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    // Straight to the descriptors: std's locks may be held by the very code that panicked.
    if !ANSWERED.swap(true, Ordering::Relaxed) {
        let version = Version::ALL.get(VERSION.load(Ordering::Relaxed)).copied().unwrap_or(Version::NEWEST);
        let error = Error::new(
            ErrorCode::INTERNAL,
            format!("internal error in the plugin, {what}: please report it with the details"),
        );
        let reply = error.with_details(format!("panicked at {location}")).in_words_for_del().to_json(version);
        write(&io::stdout(), &reply);
    }
    write(&io::stderr(), &format!("panicked at {location}: {what}"));
    std::process::exit(1)
}

fn write(to: &impl AsFd, line: &str) {
    let line = format!("{line}\n");
    let mut rest = line.as_bytes();
    while let Ok(written @ 1..) = nix::unistd::write(to.as_fd(), rest) {
        rest = rest.get(written..).unwrap_or_default();
    }
}
