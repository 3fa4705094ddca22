//! The do-nothing plugin as a program, so that tests can start it as runtimes do.

mod noop;

fn main() -> std::process::ExitCode {
    cni::main(&noop::Noop::default())
}
