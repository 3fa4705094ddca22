//! Which changes on disk cause a reconcile: of what the agent writes (binaries, configuration, pools) and of what it reads (other
//! CNI configurations, the NativePodNetwork). The kernel reports directories; the files are compared, so that what the agent
//! writes itself causes no work.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use installer::Snapshot;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use resident::readable::{Readable, drain};

use crate::facts::reconcile_report::ReconcileReport;
use crate::settings::Settings;
use crate::sources::npn;

/// Far more than a node has networks.
const MAX_FOLDERS: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileChange {
    /// What the agent writes, or what decides about it.
    pub installed: bool,
    pub npn: bool,
}

/// Watches files for one task.
#[derive(Debug)]
pub(crate) struct FileWatch {
    inotify: Inotify,
    readable: Readable,
    directories: Vec<PathBuf>,
    /// Watched alone: its directory is busy with pods.
    pools: PathBuf,
    npn_file: Option<PathBuf>,
    installed: Snapshot,
    published: Snapshot,
    npn: Snapshot,
    /// A reconcile wrote some of it, so another is due. A program that reverted it meanwhile restored the known state, so no change
    /// shows.
    is_owed: bool,
}

impl FileWatch {
    /// Watches the files that the settings name.
    pub(crate) fn watch(settings: &Settings) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let directories = [&settings.installer.cni_bin_dir, &settings.installer.cni_conf_dir].map(PathBuf::clone);
        let mut files = Self {
            readable: Readable::new(inotify.as_fd())?,
            inotify,
            directories: directories.to_vec(),
            pools: settings.state_dir.join("pools.json"),
            npn_file: npn::file(settings),
            installed: Snapshot::default(),
            published: Snapshot::default(),
            npn: Snapshot::default(),
            is_owed: false,
        };
        files.npn = files.read_npn();
        files.note_files();
        Ok(files)
    }

    /// Notes the files as they are, before a reconcile that reads all of them. Watches new ones.
    pub(crate) fn note_files(&mut self) {
        let npn_dir = self.npn_file.as_deref().and_then(Path::parent);
        let directories = self.directories.iter().map(PathBuf::as_path).chain(npn_dir);
        directories.chain([self.pools.as_path()]).for_each(|path| self.arm(path));
        // libcni loads plugins from folders in the directory of configurations.
        let inside = self.directories.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
        let folders = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.take(MAX_FOLDERS).for_each(|entry| self.arm(&entry.path()));
        (self.installed, self.published) = (self.read_installed(), self.read_pools());
    }

    /// Notes what a reconcile wrote. It is indistinguishable from a change of another program, so one more reconcile follows.
    pub(crate) fn written(&mut self, report: &ReconcileReport) {
        if report.changes.iter().any(|change| matches!(change.noun.as_str(), "cni" | "pools")) {
            self.arm(&self.pools);
            self.is_owed = true;
        }
    }

    /// Waits for changes. Cancel-safe.
    /// After an error, open another.
    pub(crate) async fn news(&mut self) -> io::Result<FileChange> {
        loop {
            if !self.is_owed {
                self.readable.wait(|| drain(&self.inotify)).await?;
            }
            let is_owed = std::mem::take(&mut self.is_owed);
            let npn = self.read_npn();
            let installed = is_owed || self.read_installed() != self.installed || self.read_pools() != self.published;
            let news = FileChange { installed, npn: npn != self.npn };
            self.npn = npn;
            if news != FileChange::default() {
                return Ok(news);
            }
        }
    }

    fn arm(&self, path: &Path) {
        let changes = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        // What does not exist cannot be watched; the timer finds it.
        let _ = self.inotify.add_watch(path, changes);
    }

    fn read_installed(&self) -> Snapshot {
        self.directories.iter().fold(Snapshot::default(), |installed, directory| installed.with(directory))
    }

    fn read_pools(&self) -> Snapshot {
        Snapshot::default().with(&self.pools)
    }

    fn read_npn(&self) -> Snapshot {
        self.npn_file.iter().fold(Snapshot::default(), |snapshot, file| snapshot.with(file))
    }
}
