//! Judgement and schedule.

mod judgement;
mod schedule;
