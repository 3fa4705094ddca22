//! A program that does nothing: what starting and ending a static program costs by itself.

fn main() {}
