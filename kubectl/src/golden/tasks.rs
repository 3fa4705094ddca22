//! The answers of `task`, and of the commands that create a NodeTask.

use api::NodeTask;

use super::{NARROW, WIDE, read, shows};
use crate::answer::{Answer as _, Exit};
use crate::commands::task::{TaskSummary, Tasks};

fn summaries() -> Vec<TaskSummary> {
    read::<Vec<NodeTask>>("task/objects.json").iter().map(TaskSummary::of).collect()
}

fn one(name: &str) -> Tasks {
    Tasks::One(Box::new(summaries().into_iter().find(|task| task.name == name).unwrap()))
}

#[test]
fn tasks_are_listed_with_the_unfinished_first() {
    let list = Tasks::all(summaries(), vec!["later".to_owned()]);
    shows(&list, NARROW, "task/list.txt");
    shows(&list, WIDE, "task/list-wide.txt");
    assert_eq!(list.exit(), Exit::Problem);
    assert_eq!(Tasks::all(Vec::new(), Vec::new()).exit(), Exit::Fine);
}

#[test]
fn task_shows_running_and_failed_nodes_with_the_next_step() {
    for (name, exit) in [
        ("grow-web", Exit::Fine),
        ("restart-x7k2f", Exit::Fine),
        ("reboot-b", Exit::Problem),
        ("restart-off", Exit::Usage),
    ] {
        shows(&one(name), NARROW, &format!("task/{name}.txt"));
        assert_eq!(one(name).exit(), exit, "{name}");
    }
}
