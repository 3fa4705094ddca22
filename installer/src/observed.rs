//! What is on the disk now: other people's CNI configurations, ours, the binaries, and what the binaries of the chain
//! answer to VERSION. Looking changes nothing.

mod binaries;
mod called;
mod conf_file;
mod conf_text;
mod gives;
mod leftover;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(crate) use binaries::{Binary, ChainBinary, Found, Whose};
pub(crate) use conf_file::conf_files;
pub use conf_file::{ConfFile, Contents};
pub(crate) use conf_text::{At, ConfText};
pub use gives::Gives;
pub(crate) use leftover::{Leftover, There, is_ours};

use crate::record::Record;
use crate::versions::Answer;
use crate::{Answers, Error, Settings, place};

/// A temporary file this old belongs to an installer that was killed; a living one needs a second or two.
const STALE_AFTER: Duration = Duration::from_secs(600);

/// A node's disk, as far as it concerns us.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The files that a runtime would consider, in the order it does.
    pub(crate) conf_files: Vec<ConfFile>,
    /// What is at our configuration's place.
    pub(crate) conflist: At,
    /// Directories of the runtime's that do not exist.
    pub(crate) missing_directories: Vec<PathBuf>,
    /// Our binaries, source and target.
    pub(crate) binaries: Vec<Binary>,
    /// The chain's binaries, the main plugin first, those that others put there last.
    pub(crate) chain: Vec<ChainBinary>,
    /// Others' configurations that we are or shall be chained into, by name.
    pub(crate) hosts: Vec<(String, At)>,
    /// What the plugin answers that is chained into them.
    pub(crate) guest: Option<Answer>,
    /// Plugins without a binary of each usable configuration before ours, by its name, up to the first that has all.
    pub(crate) missing_before: BTreeMap<String, Vec<String>>,
    /// Our configuration, where nothing is to be installed.
    pub(crate) leftover: Option<Leftover>,
    /// Temporary files of installers that were killed.
    pub(crate) stale: Vec<PathBuf>,
    /// What could not be looked at. The rest was.
    pub(crate) failures: Vec<Error>,
}

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// Whether the pod network is ours to install.
    pub(crate) install: bool,
    /// Whether nobody else installs at this moment.
    pub(crate) alone: bool,
    /// What we did before.
    pub(crate) record: &'a Record,
    /// What is known of plugins.
    pub(crate) answers: &'a Answers,
}

impl Observed {
    /// Nothing but the runtime's files.
    pub(crate) const fn of(conf_files: Vec<ConfFile>) -> Self {
        Self {
            conf_files,
            conflist: At::Nothing,
            missing_directories: Vec::new(),
            binaries: Vec::new(),
            chain: Vec::new(),
            hosts: Vec::new(),
            guest: None,
            missing_before: BTreeMap::new(),
            leftover: None,
            stale: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Looks at everything that an installation concerns.
    pub(crate) fn look(settings: &Settings, conf_files: Vec<ConfFile>, scope: Scope<'_>) -> Self {
        let chained = scope.record.configurations.keys().filter(|name| name.as_str() != vcn::CONFLIST_FILE);
        let wanted = settings.chain_into.iter().filter(|_| !scope.install);
        let mut hosts: Vec<&String> = chained.chain(wanted).collect();
        hosts.sort();
        hosts.dedup();
        let at = |name: &str| At::settled(&settings.cni_conf_dir.join(name));
        let hosts = hosts.into_iter().map(|name| (name.clone(), at(name))).collect();
        // Where nothing is to be installed, nothing of the runtime's is even looked at.
        let guest_wanted = settings.chain_into.is_some() && !scope.install;
        if !scope.install && !guest_wanted {
            return Self { hosts, ..Self::of(conf_files) };
        }
        let directories = [&settings.cni_bin_dir, &settings.cni_conf_dir];
        let age = if scope.alone { Duration::ZERO } else { STALE_AFTER };
        let stale = settings.written_directories();
        let stale = stale.iter().flat_map(|path| stale_in(path, SystemTime::now(), age)).collect();
        let missing = directories.into_iter().filter(|path| !path.exists()).cloned().collect();
        let (mut binaries, mut failures) = (Vec::new(), Vec::new());
        for binary in binaries::ours(settings, scope.install) {
            match binary {
                Ok(binary) => binaries.push(binary),
                Err(error) => failures.push(error),
            }
        }
        let (conflist, chain, missing_before) = if scope.install {
            let conflist = at(vcn::CONFLIST_FILE);
            let chain = binaries::chain(settings, conflist.file(), scope.answers);
            (conflist, chain, binaries::missing_before(settings, &conf_files))
        } else {
            (At::Nothing, Vec::new(), BTreeMap::new())
        };
        let guest = guest_wanted.then(|| binaries::guest(settings, scope.answers));
        Self {
            conf_files,
            conflist,
            missing_directories: missing,
            binaries,
            chain,
            hosts,
            guest,
            missing_before,
            leftover: None,
            stale,
            failures,
        }
    }
}

/// Our temporary files in a directory that are at least so old. What cannot be looked at is left.
pub(crate) fn stale_in(directory: &Path, now: SystemTime, age: Duration) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(place::is_temporary));
    let old = ours.filter(|entry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        age.is_zero() || written.is_ok_and(|written| now.duration_since(written).is_ok_and(|since| since >= age))
    });
    let mut paths: Vec<_> = old.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    /// One that is being written by a living installer is not taken from it.
    #[test]
    fn temporary_files_go_at_once_where_nobody_else_installs_and_else_when_they_are_old() {
        let directory = tempfile::tempdir().unwrap();
        let settings = fixture::settings_in(directory.path());
        let file = |name: &str, age: Duration| {
            let path = settings.cni_bin_dir.join(name);
            fs::create_dir_all(&settings.cni_bin_dir).unwrap();
            let written = fs::File::create(&path).unwrap();
            written.set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let young = file(".oke-cni-installer.1.tmp", Duration::from_secs(1));
        let old = file(".oke-cni-installer.2.tmp", STALE_AFTER + Duration::from_secs(60));
        file("vcn-native", STALE_AFTER * 2);
        let record = Record::default();
        let answers = Answers::waited_for();
        let scope = |alone| Scope { install: true, alone, record: &record, answers: &answers };
        let stale = |alone| Observed::look(&settings, vec![], scope(alone)).stale;
        assert_eq!(stale(true), [young, old.clone()]);
        assert_eq!(stale(false), [old]);
    }
}
