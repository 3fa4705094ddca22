//! A recorded node in a folder of its own, so that a test can break it, and its engine by a clock of the test's.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use health::collectors::KINDS;
use health::engine::{Engine, Now, RulesFiles};
use health::facts::{Facts, NetworkFacts, PoolFacts, VnicLink};
use health::system::{Answer, Clock, Space, System};
use health::{Host, Report, Verdict};
use serde_json::Value;
use vcn::{ConntrackCounts, HealthReporter};

/// All collectors are due again after this.
pub(crate) const ROUND: Duration = Duration::from_secs(330);

/// A node that a test may break.
pub(crate) struct Node {
    folder: tempfile::TempDir,
    pub(crate) facts: Facts,
    pub(crate) system: Arc<Recorded>,
    engine: Engine,
    begun: Instant,
    rounds: u32,
}

/// The answers of `system.json`.
pub(crate) struct Recorded {
    pub(crate) answers: Mutex<Value>,
    log: PathBuf,
    refuses_log: AtomicBool,
    pages: AtomicU64,
}

impl Node {
    pub(crate) fn virtual_machine() -> Self {
        Self::of("oke-e5-flex-vm", "VM.Standard.E5.Flex", &["ens3", "ens5"], 64_277_708_800)
    }

    pub(crate) fn bare_metal() -> Self {
        Self::of("oke-e5-192-bm", "BM.Standard.E5.192", &["ens300f0np0", "enp1s0vlan1"], 2_378_757_570_560)
    }

    /// A machine with a GPU, without kubelet, cloud agent and time service, whose files are a real kernel's.
    pub(crate) fn real_kernel() -> Self {
        Self::of("nvidia-h100-vm", "VM.GPU.H100", &["eth0"], 0)
    }

    /// The virtual machine with other disks.
    pub(crate) fn with_disks(recorded: &str) -> Self {
        let node = Self::virtual_machine();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded/disks").join(recorded);
        for folder in ["sys/dev", "sys/devices"] {
            fs::remove_dir_all(node.path(folder)).unwrap();
        }
        copy(&from, node.folder.path());
        *node.system.answers.lock().unwrap() =
            serde_json::from_str(&fs::read_to_string(node.path("system.json")).unwrap()).unwrap();
        node
    }

    /// The files of the folder `later` replace the first ones.
    pub(crate) fn advance(&self) {
        copy(&self.path("later"), self.folder.path());
    }

    /// `pods` is the memory that pods may use, of which the kubelet keeps 100 MiB free.
    pub(crate) fn of(recorded: &str, shape: &str, links: &[&str], pods: u64) -> Self {
        // In memory: some nodes have thousands of files.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded").join(recorded);
        copy(&from, folder.path());
        let answers = serde_json::from_str(&fs::read_to_string(from.join("system.json")).unwrap()).unwrap();
        let log = folder.path().join("kernel.log");
        let system = Arc::new(Recorded {
            answers: Mutex::new(answers),
            log,
            refuses_log: AtomicBool::new(false),
            pages: AtomicU64::new(0),
        });
        let link = |name: &&str| VnicLink { name: (*name).to_owned(), primary: *name == links[0], is_kept_up: true };
        let pool_link = links.last().copied().unwrap_or_default();
        let pool = |family: &str| PoolFacts {
            link: pool_link.to_owned(),
            shared: None,
            family: family.to_owned(),
            total: 31,
            in_use: 12,
            cooling: 2,
            free: 17,
        };
        let shared = PoolFacts {
            link: pool_link.to_owned(),
            shared: Some("storage".to_owned()),
            total: 3,
            in_use: 2,
            cooling: 0,
            free: 1,
            ..pool("IPv4")
        };
        let facts = Facts {
            shape: Some(shape.to_owned()),
            node_name: Some("10.0.10.7".to_owned()),
            node_ip: Some("10.0.10.7".parse().unwrap()),
            primary_addresses: vec!["10.0.10.7".parse().unwrap()],
            links: links.iter().map(link).collect(),
            paths: ["/host/usr", "/run/vcn-native"].map(PathBuf::from).to_vec(),
            state_dir: Some(folder.path().to_owned()),
            metadata: Some(("169.254.169.254:80".parse().unwrap(), "/opc/v2/instance/shape".to_owned())),
            version: "0.1.0".to_owned(),
            allocatable_memory: pods.checked_sub(100 << 20),
            runtime: Some("cri-o".to_owned()),
            kubelet_port: 10248,
            network: Some(NetworkFacts { conditions: Vec::new(), repairs: 3, pools: vec![pool("IPv4"), shared] }),
            ..Facts::default()
        };
        let begun = Instant::now();
        let root = folder.path();
        let host = Host {
            proc: root.join("proc"),
            sys: root.join("sys"),
            root: root.join("host"),
            facts: Arc::default(),
            system: system.clone(),
            now: begun,
        };
        let rules = RulesFiles { controller: root.join("sent.json"), own: root.join("rules.json") };
        let engine = Engine::new(KINDS, host, rules, || 0.0);
        Self { folder, facts, system, engine, begun, rounds: 0 }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A symbolic link; its folder is made.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(crate) fn replace(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(path)).unwrap();
        assert!(text.contains(from), "{path}: {text}");
        self.write(path, &text.replace(from, to));
    }

    /// Adds to a number in a file.
    pub(crate) fn add(&self, path: &str, more: i64) {
        let number: i64 = fs::read_to_string(self.path(path)).unwrap().trim().parse().unwrap();
        self.write(path, &format!("{}\n", number + more));
    }

    /// Takes the capability SYSLOG away.
    pub(crate) fn refuse_kernel_log(&self) {
        self.system.refuses_log.store(true, Ordering::SeqCst);
    }

    /// Sets an answer of the recorded system, by its JSON pointer.
    pub(crate) fn answer(&self, pointer: &str, value: impl Into<Value>) {
        *self.system.answers.lock().unwrap().pointer_mut(pointer).unwrap() = value.into();
    }

    /// Runs each collector once more, by now.
    pub(crate) fn sample(&mut self) -> Report {
        self.rounds += 1;
        let instant = self.begun + ROUND * self.rounds;
        let now = Now { instant, unix_millis: u64::from(self.rounds) * 330_000 };
        loop {
            self.engine.step(now, || self.facts.clone());
            let report = self.engine.report();
            let signals = health::collectors::signals().count();
            let current = |state: &&health::SignalState| state.sampled_unix_millis == now.unix_millis;
            if report.signals.iter().filter(current).count() == signals {
                return report;
            }
            self.engine.wait(instant);
        }
    }
}

/// The signals with a verdict.
pub(crate) fn with(report: &Report, verdict: Verdict) -> BTreeSet<String> {
    let of_it = report.signals.iter().filter(|state| state.verdict == verdict);
    of_it.map(|state| state.signal.clone()).collect()
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy(&from, &to);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&from).unwrap(), &to).unwrap();
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

impl Recorded {
    /// Without the capability SYSLOG.
    pub(crate) fn refuse_log(&self) {
        self.refuses_log.store(true, Ordering::SeqCst);
    }

    fn at(&self, pointer: &str) -> io::Result<Value> {
        let found = self.answers.lock().unwrap().pointer(pointer).cloned();
        found.filter(|value| !value.is_null()).ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }
}

impl System for Recorded {
    fn clock(&self) -> io::Result<Clock> {
        Ok(Clock {
            synchronized: self.at("/synchronized")?.as_bool().unwrap(),
            estimated_error_micros: self.at("/estimatedErrorMicros")?.as_i64().unwrap(),
        })
    }

    fn kernel_log(&self) -> io::Result<String> {
        if self.refuses_log.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        fs::read_to_string(&self.log)
    }

    fn conntrack_counts(&self) -> io::Result<ConntrackCounts> {
        let counts = self.at("/conntrack")?;
        let [drop, early_drop, insert_failed] = [0, 1, 2].map(|at| counts[at].as_u64().unwrap());
        Ok(ConntrackCounts { drop, early_drop, insert_failed })
    }

    fn health_reporters(&self) -> io::Result<Vec<HealthReporter>> {
        let found = self.at("/devlink").unwrap_or_default();
        let reporter = |one: &Value| HealthReporter {
            bus: "pci".to_owned(),
            device: one[0].as_str().unwrap().to_owned(),
            name: one[1].as_str().unwrap().to_owned(),
            is_failed: one[2].as_bool().unwrap(),
            errors: 1,
        };
        Ok(found.as_array().into_iter().flatten().map(reporter).collect())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let space = self.at(&format!("/spaces/{}", path.to_str().unwrap().replace('/', "~1")))?;
        let number = |key: &str| space[key].as_u64().unwrap();
        let (bytes, available) = (number("bytes"), number("available"));
        Ok(Space { bytes, available, files: number("files"), files_free: number("filesFree") })
    }

    fn get(&self, address: SocketAddr, _path: &str, _deadline: Duration) -> io::Result<Answer> {
        let answer = self.at(&format!("/services/{address}"))?;
        Ok(Answer {
            status: u16::try_from(answer["status"].as_u64().unwrap()).unwrap(),
            body: answer["body"].as_str().unwrap().to_owned(),
            took: Duration::from_millis(answer["millis"].as_u64().unwrap()),
        })
    }

    /// In which `{energy}` grows.
    fn page(&self, address: SocketAddr, path: &str, deadline: Duration) -> io::Result<Answer> {
        let answer = self.get(address, path, deadline)?;
        let energy = 251_885_217_371 + 30_000 * self.pages.fetch_add(1, Ordering::SeqCst);
        Ok(Answer { body: answer.body.replace("{energy}", &energy.to_string()), ..answer })
    }
}
