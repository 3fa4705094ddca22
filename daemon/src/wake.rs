//! When to run a pass: at the start, when a source says something new, when the kernel's network or a file that concerns us
//! changes, when a running pod seems to lack something, after a failure, and on a slow timer. One task; passes never overlap.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::aftercare::Duties;
use crate::backoff::{DEBOUNCE, RETRY, chance, jittered};
use crate::events::{Concern, Events};
use crate::files::{Files, News};
use crate::metrics::Metrics;
use crate::pass::{Cause, Pass};
use crate::reconcile::pods::SETTLED;
use crate::reconcile::{Attention, Reconciler};
use crate::reload::{self, Configuration};
use crate::since::Since;
use crate::transitions;
use crate::world::World;

/// Asks for a preview; the answer is a pass that changed nothing.
pub type PreviewRequest = oneshot::Sender<Pass>;

/// What the loop needs.
#[derive(Debug)]
pub struct Loop {
    /// Whoever does the work.
    pub reconciler: Reconciler,
    /// How often.
    pub configurations: watch::Receiver<Configuration>,
    /// Where passes are counted.
    pub metrics: Arc<Metrics>,
    /// What is known from outside.
    pub worlds: watch::Receiver<World>,
    /// Told when links come, go or change.
    pub plugged: Arc<Notify>,
    /// Told when the NativePodNetwork's file changed.
    pub published: Arc<Notify>,
    /// Who wants previews.
    pub previews: mpsc::Receiver<PreviewRequest>,
    /// Told of addresses that a pass freed.
    pub duties: Arc<Duties>,
    /// Where passes are published.
    pub passes: watch::Sender<Option<Arc<Pass>>>,
}

/// Repairs this close to each other are a fight with somebody who undoes them.
const FIGHT: Duration = Duration::from_secs(10);

/// How long the first pass waits for the sources, so that it does not report what is known a moment later.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

impl Loop {
    /// Runs passes for ever; ends when the sources' task does.
    ///
    /// # Errors
    /// When a pass panicked, or the kernel's events cannot be had at the start.
    pub async fn run(self) -> io::Result<()> {
        let Self { mut reconciler, metrics, mut worlds, plugged, published, mut previews, duties, passes, .. } = self;
        let mut configurations = self.configurations;
        let mut settings = configurations.borrow_and_update().settings.clone();
        let mut since = Since::default();
        let mut events = Events::open()?;
        let mut files = Files::watch(&settings)?;
        let _ = tokio::time::timeout(FIRST_ANSWER, worlds.changed()).await;
        let mut world = worlds.borrow_and_update().clone();
        let mut cause = Cause::Start;
        let (mut failures, mut repairs, mut next) = (0, Repairs::default(), Instant::now());
        loop {
            // Those for the kernel's events do not look at what is installed.
            if cause != Cause::Kernel {
                files.settle();
            }
            let (returned, mut pass) = run_pass(reconciler, world.clone(), cause).await?;
            reconciler = returned;
            since.note(&mut pass);
            let mut attention = reconciler.attention_again().map(|wait| Instant::now() + wait);
            metrics.passed(&pass);
            duties.freed(&pass.freed);
            files.written(&pass);
            let pass = Arc::new(pass);
            transitions::log(passes.send_replace(Some(pass.clone())).as_deref(), &pass);
            repairs.note(&pass, Instant::now());
            // A pass for the kernel's events tries nothing again that failed, so it does not put the next try off either,
            // nor, however often they come, the slow look at everything.
            let same = failures == 0 && !pass.wants_retry() || failures > 0 && pass.wants_retry();
            if cause != Cause::Kernel || !same {
                failures = if pass.wants_retry() { failures + 1 } else { 0 };
                next = Instant::now() + pause(failures, settings.resync);
            }
            cause = loop {
                tokio::select! {
                    () = sleep_until(next) => break if failures > 0 { Cause::Retry } else { Cause::Timer },
                    changed = worlds.changed() => {
                        if changed.is_err() {
                            return Ok(());
                        }
                        let now = worlds.borrow_and_update().clone();
                        let news = !now.says_the_same(&world);
                        world = now;
                        if news {
                            break Cause::Sources;
                        }
                    }
                    () = reload::changed(&mut configurations) => {
                        let configuration = configurations.borrow_and_update().clone();
                        settings = configuration.settings.clone();
                        reconciler.adopt(configuration);
                        break Cause::Settings;
                    }
                    heard = events.concerning() => {
                        match heard {
                            Ok(Concern { host: false, .. }) => {
                                let soon = Instant::now() + SETTLED;
                                attention = Some(attention.map_or(soon, |planned| planned.min(soon)));
                                continue;
                            }
                            Ok(concern) => {
                                sleep(repairs.debounce(Instant::now())).await;
                                // What came meanwhile needs no pass of its own; what is broken is found so the next time.
                                if events.gathered().unwrap_or(true) || concern.links {
                                    plugged.notify_one();
                                }
                            }
                            Err(error) => {
                                tracing::warn!(event = "kernel.monitor_lost", %error, "listening anew");
                                sleep(RETRY.pause(1, chance())).await;
                                // Out of descriptors, most likely: the broken one fails again, and so another is tried.
                                if let Ok(new) = Events::open() {
                                    events = new;
                                }
                            }
                        }
                        break Cause::Kernel;
                    }
                    news = files.news() => {
                        match news {
                            Ok(News { kept, npn }) => {
                                if npn {
                                    published.notify_one();
                                }
                                if !kept {
                                    continue;
                                }
                                sleep(repairs.debounce(Instant::now())).await;
                            }
                            Err(error) => {
                                tracing::warn!(event = "files.watch_lost", %error, "watching anew");
                                sleep(RETRY.pause(1, chance())).await;
                                if let Ok(new) = Files::watch(&settings) {
                                    files = new;
                                }
                            }
                        }
                        break Cause::Files;
                    }
                    () = sleep_until(attention.unwrap_or(next)), if attention.is_some() => {
                        let signs = events.signs();
                        let asked = work(reconciler, move |reconciler| reconciler.attention(signs));
                        let (returned, Attention { look, again }) = asked.await?;
                        reconciler = returned;
                        attention = again.map(|wait| Instant::now() + wait);
                        if look {
                            break Cause::Kernel;
                        }
                    }
                    Some(asker) = previews.recv() => {
                        let (returned, pass) = run_pass(reconciler, world.clone(), Cause::Preview).await?;
                        reconciler = returned;
                        // Whoever asked may have gone.
                        let _ = asker.send(pass);
                    }
                }
            };
        }
    }
}

async fn run_pass(reconciler: Reconciler, world: World, cause: Cause) -> io::Result<(Reconciler, Pass)> {
    work(reconciler, move |reconciler| reconciler.pass(&world, cause)).await
}

/// Kernel and files are short but synchronous work: not on the thread that answers health checks.
async fn work<T: Send + 'static>(
    mut reconciler: Reconciler,
    act: impl FnOnce(&mut Reconciler) -> T + Send + 'static,
) -> io::Result<(Reconciler, T)> {
    let done = tokio::task::spawn_blocking(move || {
        let answer = act(&mut reconciler);
        (reconciler, answer)
    });
    done.await.map_err(io::Error::other)
}

fn pause(failures: u32, resync: Duration) -> Duration {
    match failures {
        0 => jittered(resync, chance()),
        attempt => RETRY.pause(attempt, chance()).min(resync),
    }
}

/// Repairs in a row, as far as they are close to each other.
#[derive(Debug, Default)]
struct Repairs {
    last: Option<Instant>,
    count: u32,
}

impl Repairs {
    fn note(&mut self, pass: &Pass, now: Instant) {
        if matches!(pass.cause, Cause::Kernel | Cause::Files) && !pass.changes.is_empty() {
            self.count = if self.is_fight(now) { self.count.saturating_add(1) } else { 1 };
            self.last = Some(now);
        }
    }

    fn debounce(&self, now: Instant) -> Duration {
        DEBOUNCE.pause(if self.is_fight(now) { self.count } else { 1 }, 1.0)
    }

    fn is_fight(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < FIGHT)
    }
}
