//! The CNI plugin `vcn-native`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cni::main(&vcn_native::VcnNative)
}
