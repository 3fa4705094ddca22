//! Tables of the plan, and of the choice of pods.

mod drain;
mod plan;
