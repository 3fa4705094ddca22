//! Tasks on a simulated cluster.

mod ends;
mod fleet;
mod world;
