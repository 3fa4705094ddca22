//! The CNI plugin `vnic-attach`.
//!
//! The C library calls it directly: Rust's own start-up also prepares for a stack overflow, for which it reads
//! /proc/self/maps, a twentieth of an ADD. What else that does for a program `cni::main` does.

#![no_main]

use std::ffi::c_int;
use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// musl's own calls the kernel for every few pages, a tenth of an ADD.
#[global_allocator]
static HEAP: GlobalDlmalloc = GlobalDlmalloc;

#[expect(unsafe_code, reason = "the C library knows it by this name; no other function of the program has it")]
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    c_int::from(cni::main(&vnic_attach::VnicAttach) != ExitCode::SUCCESS)
}
