//! The fabric's promises, frame by frame.

mod anti_spoofing;
mod delivery;
mod neighbours;
mod robustness;
mod services;
mod world;
