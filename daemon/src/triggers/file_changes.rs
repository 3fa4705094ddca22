//! Which changes on disk are worth a look: of what we put there (binaries, configuration, pools) and of what we read (other
//! CNI configurations, the NativePodNetwork). The kernel tells of directories; whether anything is different, the files do,
//! so that nothing we write ourselves makes work.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use installer::Snapshot;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use resident::readable::{Readable, drain};

use crate::report::reconcile_report::Pass;
use crate::settings::Settings;
use crate::sources::npn;

/// What changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// What we keep, or what decides about it.
    pub kept: bool,
    /// The NativePodNetwork.
    pub npn: bool,
}

/// The files' changes, for one task to wait for.
#[derive(Debug)]
pub struct Files {
    inotify: Inotify,
    readable: Readable,
    directories: Vec<PathBuf>,
    /// Watched by itself: its directory is busy with pods.
    pools: PathBuf,
    npn_file: Option<PathBuf>,
    installed: Snapshot,
    published: Snapshot,
    npn: Snapshot,
    /// A pass wrote some of it, so that another is owed: somebody who undid it meanwhile made it what it was before, and then
    /// nothing tells.
    owed: bool,
}

impl Files {
    /// Watches the files that the settings name.
    ///
    /// # Errors
    /// When the system has no watches left.
    pub fn watch(settings: &Settings) -> io::Result<Self> {
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
            owed: false,
        };
        files.npn = files.look_at_npn();
        files.settle();
        Ok(files)
    }

    /// Takes what is kept as it is now for what is known: before a pass that looks at all of it. Watches what was not there
    /// before.
    pub fn settle(&mut self) {
        let npn_dir = self.npn_file.as_deref().and_then(Path::parent);
        let directories = self.directories.iter().map(PathBuf::as_path).chain(npn_dir);
        directories.chain([self.pools.as_path()]).for_each(|path| self.arm(path));
        (self.installed, self.published) = (self.look_at_installed(), self.look_at_pools());
    }

    /// To be told of a pass, which may have written some of it. What it wrote looks like anybody's: one more pass finds out
    /// that nobody came in between.
    pub fn written(&mut self, pass: &Pass) {
        if pass.changes.iter().any(|change| matches!(change.noun.as_str(), "cni" | "pools")) {
            self.arm(&self.pools);
            self.owed = true;
        }
    }

    /// Waits for news. May be dropped while it waits.
    ///
    /// # Errors
    /// When the watch is broken: make another.
    pub async fn news(&mut self) -> io::Result<News> {
        loop {
            if !self.owed {
                self.readable.wait(|| drain(&self.inotify)).await?;
            }
            let owed = std::mem::take(&mut self.owed);
            let npn = self.look_at_npn();
            let kept = owed || self.look_at_installed() != self.installed || self.look_at_pools() != self.published;
            let news = News { kept, npn: npn != self.npn };
            self.npn = npn;
            if news != News::default() {
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
        // What is not there is not to be watched; the timer looks, too.
        let _ = self.inotify.add_watch(path, changes);
    }

    fn look_at_installed(&self) -> Snapshot {
        self.directories.iter().fold(Snapshot::default(), |installed, directory| installed.with(directory))
    }

    fn look_at_pools(&self) -> Snapshot {
        Snapshot::default().with(&self.pools)
    }

    fn look_at_npn(&self) -> Snapshot {
        self.npn_file.iter().fold(Snapshot::default(), |snapshot, file| snapshot.with(file))
    }
}
