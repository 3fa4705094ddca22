//! The real binary and bad input: whatever it is given, it answers with one error that says what is wrong and what to do
//! next, or does its work; never both, never neither, and never a panic. `docs/errors.md` says when which code is answered.

mod call;
mod codes;
mod documents;
mod previous;
mod refused;
mod streams;
mod variables;
