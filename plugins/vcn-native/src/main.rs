//! The CNI plugin `vcn-native`.
//!
//! The C library calls it directly. Rust's own start-up would prepare for a stack overflow, for which it reads
//! /proc/self/maps, and look after closed streams and SIGPIPE: a twentieth of an ADD. A runtime gives all three streams, and
//! one that hangs up before the answer, which comes last, is no longer interested in how we end.

#![no_main]

use std::ffi::c_int;
use std::process::ExitCode;

#[expect(unsafe_code, reason = "the C library knows it by this name; no other function of the program has it")]
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    c_int::from(cni::main(&vcn_native::VcnNative) != ExitCode::SUCCESS)
}
