//! The CNI plugin `vcn-native`.
//!
//! The C library calls it directly: Rust's own start-up also prepares for a stack overflow, for which it reads
//! /proc/self/maps, a twentieth of an ADD. What else that does for a program is done here.

#![no_main]

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// musl's own asks the kernel for every few pages, a tenth of an ADD.
#[global_allocator]
static HEAP: GlobalDlmalloc = GlobalDlmalloc;

#[expect(unsafe_code, reason = "the C library knows it by this name; no other function of the program has it")]
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    secure_streams();
    c_int::from(cni::main(&vcn_native::VcnNative) != ExitCode::SUCCESS)
}

/// A runtime that closed a stream must not make a state file take its number, or the answer would be written into it; and
/// one that hangs up must not kill an ADD half-way.
#[expect(unsafe_code, reason = "descriptors that may be closed, and signal dispositions, are for libc only")]
fn secure_streams() {
    for stream in 0..=2 {
        // SAFETY: F_GETFD touches no memory, whatever the number.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1
            && let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null")
        {
            // It got the lowest free number, which is this one, and keeps it.
            let _ = null.into_raw_fd();
        }
    }
    // SAFETY: no handler of ours is installed, only the disposition "ignore".
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
