//! The pod path when the kernel, the disk or the power fails: the real binary under strace, which makes any one of its
//! system calls fail, or kills it there. What is judged is what is left.

mod errors;
mod kill;
mod scene;
mod traced;
