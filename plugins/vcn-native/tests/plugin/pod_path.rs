//! The pod path of the real binary on a real kernel, judged by packets and by what is left.

mod advertised;
mod check;
mod connections;
mod crossed;
mod deletion;
mod faults;
mod follow_up;
mod full;
mod gc;
mod loopback;
mod lost;
mod misrouted;
mod neighbours;
mod planted;
mod repeated;
mod seen;
mod status;
mod vanished;
mod verbs;
