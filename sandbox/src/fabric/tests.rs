//! The fabric's promises, frame by frame.

mod delivery;
mod neighbours;
mod refusals;
mod world;
