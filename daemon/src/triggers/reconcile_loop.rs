//! When to run a pass: at the start, when a source says something new, when the kernel's network or a file that concerns us
//! changes, when a running pod seems to lack something, after a failure, and on a slow timer. One task; passes never overlap.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cni_records::follow_up::Duties;
use crate::lifecycle::reload::{self, Configuration};
use crate::reconcile::pods::SETTLED;
use crate::reconcile::{Attention, Reconciler};
use crate::report::condition::{Condition, Reason};
use crate::report::condition_times::Since;
use crate::report::metrics::Metrics;
use crate::report::reconcile_report::{Cause, Finished, Pass};
use crate::report::transitions;
use crate::sources::backoff::{DEBOUNCE, RETRY, chance, jittered};
use crate::sources::node_facts::NodeFacts;
use crate::sources::poller::PUBLISHED;
use crate::sources::subscription::Listening;
use crate::triggers::file_changes::{Files, News};
use crate::triggers::kernel_events::{Concern, Events, Nft};

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
    pub worlds: watch::Receiver<NodeFacts>,
    /// Told when links come, go or change.
    pub plugged: Arc<Notify>,
    /// Told when the NativePodNetwork's file changed.
    pub published: Arc<Notify>,
    /// Notified of each run of a plugin: it may have taken the last address, or freed one.
    pub recorded: Arc<Notify>,
    /// Who wants previews.
    pub previews: mpsc::Receiver<PreviewRequest>,
    /// Told of addresses that a pass freed.
    pub duties: Arc<Duties>,
    /// Why the port of health and metrics cannot be had, while it cannot.
    pub port: watch::Receiver<Option<Condition>>,
    /// Where passes are published.
    pub passes: watch::Sender<Option<Finished>>,
}

/// Repairs this close to each other are a fight with somebody who undoes them.
const FIGHT: Duration = Duration::from_secs(10);

/// So many repairs in a row are no accident.
const UNDONE: u32 = 10;

impl Loop {
    /// Runs passes for ever; ends when the sources' task does.
    ///
    /// # Errors
    /// When a pass panicked, or a directory was removed that it works in: the agent must be started anew.
    pub async fn run(self) -> io::Result<()> {
        let Self {
            mut reconciler,
            metrics,
            mut worlds,
            plugged,
            published,
            recorded,
            mut previews,
            duties,
            mut port,
            passes,
            ..
        } = self;
        let mut configurations = self.configurations;
        let mut settings = configurations.borrow_and_update().settings.clone();
        let answered = reconciler.answered();
        let mut since = Since::default();
        let mut events = Listening::begin("kernel", chance, Events::open);
        let mut nft = Listening::begin("nft", chance, Nft::open);
        let mut files = Listening::begin("files", chance, || Files::watch(&settings));
        let _ = tokio::time::timeout(PUBLISHED, worlds.changed()).await;
        let mut world = worlds.borrow_and_update().clone();
        let mut cause = Cause::Start;
        let (mut failures, mut repairs, mut next) = (0, Repairs::default(), Instant::now());
        loop {
            // Those for the kernel's events do not look at what is installed.
            if cause != Cause::Kernel
                && let Some(files) = files.source()
            {
                files.settle();
            }
            if let Some(path) = reconciler.lost(cause) {
                let path = path.display();
                return Err(io::Error::other(format!(
                    "{path} was removed or moved away while it was in use: an agent that is started anew goes by the one that \
                     is there then"
                )));
            }
            let (returned, mut pass) = run_pass(reconciler, world.clone(), cause).await?;
            reconciler = returned;
            repairs.note(&pass, Instant::now());
            pass.conditions.extend(repairs.undone(Instant::now()));
            pass.conditions.extend(
                [events.condition(), nft.condition(), files.condition(), port.borrow_and_update().clone()]
                    .into_iter()
                    .flatten(),
            );
            since.note(&mut pass);
            // Signs may have come with what the pass was for. They are looked into all the same: kept, they would hide the
            // next ones, which were no news then.
            let signs = events.source().is_some_and(|events| events.has_signs()).then_some(SETTLED);
            let soonest = reconciler.attention_again().into_iter().chain(signs).min();
            let mut attention = soonest.map(|wait| Instant::now() + wait);
            metrics.passed(&pass);
            duties.freed(&pass.freed);
            if let Some(files) = files.source() {
                files.written(&pass);
            }
            let pass = Arc::new(pass);
            let finished = Finished { at: std::time::Instant::now(), pass: pass.clone() };
            let before = passes.send_replace(Some(finished)).map(|finished| finished.pass);
            transitions::log(before.as_deref(), &pass);
            // A pass for the kernel's events tries nothing again that failed, so it does not put the next try off either,
            // nor, however often they come, the slow look at everything.
            let same = failures == 0 && !pass.wants_retry() || failures > 0 && pass.wants_retry();
            if cause != Cause::Kernel || !same {
                failures = if pass.wants_retry() { failures + 1 } else { 0 };
                next = Instant::now() + pause(failures, settings.resync);
            }
            // What was said of a fight is taken back when it is over.
            next = repairs.over(Instant::now()).map_or(next, |over| over.min(next));
            next = reconciler.due().map_or(next, |wait| next.min(Instant::now() + wait));
            cause = loop {
                tokio::select! {
                    () = sleep_until(next) => break if failures > 0 { Cause::Retry } else { Cause::Timer },
                    () = answered.notified() => break Cause::Retry,
                    Ok(()) = port.changed() => break Cause::Retry,
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
                    heard = events.news(Events::open, Events::concerning) => {
                        match heard {
                            Some(Concern { host: false, .. }) => {
                                let soon = Instant::now() + SETTLED;
                                attention = Some(attention.map_or(soon, |planned| planned.min(soon)));
                                continue;
                            }
                            Some(concern) => {
                                sleep(repairs.debounce(Instant::now())).await;
                                if gathered(&mut events, &mut nft) || concern.links {
                                    plugged.notify_one();
                                }
                            }
                            None => plugged.notify_one(),
                        }
                        break Cause::Kernel;
                    }
                    touched = nft.news(Nft::open, Nft::touched) => {
                        if touched.is_some() {
                            sleep(repairs.debounce(Instant::now())).await;
                        }
                        if gathered(&mut events, &mut nft) {
                            plugged.notify_one();
                        }
                        break Cause::Kernel;
                    }
                    news = files.news(|| Files::watch(&settings), Files::news) => {
                        match news {
                            Some(News { kept, npn }) => {
                                if npn {
                                    published.notify_one();
                                }
                                if !kept {
                                    continue;
                                }
                                sleep(repairs.debounce(Instant::now())).await;
                            }
                            None => published.notify_one(),
                        }
                        break Cause::Files;
                    }
                    () = sleep_until(attention.unwrap_or(next)), if attention.is_some() => {
                        let signs = events.source().map(Events::signs).unwrap_or_default();
                        let asked = work(reconciler, move |reconciler| reconciler.attention(signs));
                        let (returned, Attention { is_due, again }) = asked.await?;
                        reconciler = returned;
                        attention = again.map(|wait| Instant::now() + wait);
                        if is_due {
                            break Cause::Kernel;
                        }
                    }
                    () = recorded.notified() => {
                        let soon = Instant::now() + SETTLED;
                        attention = Some(attention.map_or(soon, |planned| planned.min(soon)));
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

/// Takes in what came meanwhile, which needs no pass of its own. Says whether links were concerned, or might be.
fn gathered(events: &mut Listening<Events>, nft: &mut Listening<Nft>) -> bool {
    if let Some(nft) = nft.source() {
        nft.gathered();
    }
    events.source().is_none_or(|events| events.gathered().unwrap_or(true))
}

async fn run_pass(reconciler: Reconciler, world: NodeFacts, cause: Cause) -> io::Result<(Reconciler, Pass)> {
    work(reconciler, move |reconciler| reconciler.reconcile(&world, cause)).await
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

/// Passes for events that follow each other so closely are one stream of events.
const STREAM: Duration = Duration::from_secs(2);

/// So many passes of a stream may come as they come: what somebody changes by hand, or a boot, is over by then.
const AT_ONCE: u32 = 4;

/// Repairs in a row, as far as they are close to each other.
#[derive(Debug, Default)]
struct Repairs {
    /// The last pass for events, and how many of their stream there were.
    passed: Option<Instant>,
    stream: u32,
    last: Option<Instant>,
    count: u32,
    /// What the last one began with.
    example: String,
}

impl Repairs {
    fn note(&mut self, pass: &Pass, now: Instant) {
        if matches!(pass.cause, Cause::Kernel | Cause::Files) {
            self.stream = if self.is_stream(now) { self.stream.saturating_add(1) } else { 1 };
            self.passed = Some(now);
        }
        if matches!(pass.cause, Cause::Kernel | Cause::Files) && !pass.changes.is_empty() {
            self.count = if self.is_fight(now) { self.count.saturating_add(1) } else { 1 };
            self.last = Some(now);
            self.example = pass.changes.first().map(|change| change.text.clone()).unwrap_or_default();
        }
    }

    /// What to say of a fight. In the words of its beginning: what is repaired may be another thing each time.
    fn undone(&self, now: Instant) -> Option<Condition> {
        (self.count >= UNDONE && self.is_fight(now)).then(|| {
            let message = format!(
                "what is repaired is undone within seconds, {} times in a row so far; the last time: {}",
                self.count, self.example
            );
            Condition::degraded(Reason::RepairsUndone, message)
        })
    }

    /// When a fight will be over if nobody goes on with it.
    fn over(&self, now: Instant) -> Option<Instant> {
        self.last.filter(|_| self.count >= UNDONE && self.is_fight(now)).map(|last| last + FIGHT)
    }

    /// How long events are gathered before a pass. A link that flaps, of whomever, is no reason for a pass each time.
    fn debounce(&self, now: Instant) -> Duration {
        let repairs = if self.is_fight(now) { self.count } else { 1 };
        let stream = if self.is_stream(now) { self.stream.saturating_sub(AT_ONCE) } else { 0 };
        DEBOUNCE.pause(repairs.max(stream), 1.0)
    }

    fn is_stream(&self, now: Instant) -> bool {
        self.passed.is_some_and(|last| now.saturating_duration_since(last) < STREAM)
    }

    fn is_fight(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < FIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::reconcile_report::Changed;

    fn repair(cause: Cause) -> Pass {
        Pass {
            cause,
            unix_millis: 0,
            micros: 0,
            changes: vec![Changed::new("rule", "rule add pref 512 from all lookup 999")],
            conditions: Vec::new(),
            vnics: Vec::new(),
            machine: None,
            freed: Vec::new(),
            usable: true,
            pod_network: None,
        }
    }

    #[test]
    fn only_repairs_that_follow_each_other_are_a_fight() {
        let mut repairs = Repairs::default();
        let (mut told, mut now) = (Vec::new(), Instant::now());
        for _ in 0..12 {
            now += FIGHT / 2;
            repairs.note(&repair(Cause::Kernel), now);
            told.push(repairs.undone(now).is_some());
        }
        assert_eq!(told, [vec![false; 9], vec![true; 3]].concat());
        now += FIGHT;
        assert_eq!(repairs.undone(now), None, "nobody undid the last one");
        repairs.note(&repair(Cause::Kernel), now);
        assert_eq!(repairs.count, 1);
        for _ in 0..20 {
            repairs.note(&repair(Cause::Sources), now);
        }
        assert_eq!(repairs.count, 1, "what the sources ask for is no repair");
    }

    #[test]
    fn a_stream_of_events_is_gathered_longer_and_one_that_ended_is_forgotten() {
        let mut repairs = Repairs::default();
        let mut now = Instant::now();
        let nothing = Pass { changes: Vec::new(), ..repair(Cause::Kernel) };
        let pauses: Vec<u128> = (0..9)
            .map(|_| {
                now += STREAM / 2;
                repairs.note(&nothing, now);
                repairs.debounce(now).as_millis()
            })
            .collect();
        assert_eq!(pauses, [50, 50, 50, 50, 50, 100, 200, 400, 400]);
        assert_eq!(repairs.undone(now), None, "nothing was repaired");
        assert_eq!(repairs.debounce(now + STREAM).as_millis(), 50);
        repairs.note(&Pass { changes: Vec::new(), ..repair(Cause::Timer) }, now + STREAM);
        assert_eq!(repairs.stream, 9, "the timer's are no events");
    }

    #[test]
    fn the_longer_a_fight_the_longer_events_are_gathered_and_never_for_long() {
        let mut repairs = Repairs::default();
        let now = Instant::now();
        let pauses: Vec<u128> = (0..8)
            .map(|_| {
                repairs.note(&repair(Cause::Kernel), now);
                repairs.debounce(now).as_millis()
            })
            .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 400, 400, 400, 400]);
    }
}
