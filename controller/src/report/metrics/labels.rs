//! The labels of our metrics.

use resident::labels;

labels! {
    Call { operation: &'static str, status: String }
    OfOperation { operation: &'static str }
    Queue { state: &'static str }
    Object { ready: String, reason: String }
    Outcome { result: &'static str }
    Problem { reason: &'static str }
    ProfileNodes { profile: String, state: &'static str }
    Kind { kind: &'static str }
    Watched { watch: &'static str }
    PolicyProgress { policy: String, progress: &'static str }
    PolicyNodes { policy: String, state: &'static str }
    NodesInState { state: String }
    SignalProblem { signal: &'static str, severity: String }
    TasksInState { state: &'static str }
    TaskResult { action: &'static str, reason: &'static str }
    Step { kind: &'static str, result: &'static str }
}
