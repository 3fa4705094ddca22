//! The NativePodNetwork as the API server last had it, on disk: an agent that starts while no API server answers goes on
//! with it. It is a copy: one that is lost or damaged is made anew as soon as the API server answers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::NativePodNetwork;
use ipam::{read_state, write_atomically};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vcn::{NPN_COPY_FILE, Ocid};

use super::{Answer, Error, NativePodNetworks, read};

const VERSION: u32 = 1;

/// The copy.
#[derive(Clone, Debug)]
pub struct Kept {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<V> {
    version: u32,
    /// When it came, by the wall clock.
    written_unix_millis: u64,
    /// As the API server had it.
    object: V,
}

impl Kept {
    /// The one in a directory that outlives a boot.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(NPN_COPY_FILE) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The copy and its age; `None` where there is none.
    ///
    /// # Errors
    /// When there is one that is of no use to this instance.
    pub fn look(&self, instance: &Ocid, now: SystemTime) -> Result<Option<(NativePodNetwork, Duration)>, Error> {
        let document = match read_state(&self.path) {
            Ok(document) => document,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Read { path: self.path.clone(), source }),
        };
        let damaged = |source: serde_json::Error| Error::Read { path: self.path.clone(), source: source.into() };
        let Document { written_unix_millis, object, .. } =
            serde_json::from_slice::<Document<Value>>(&document).map_err(damaged)?;
        let npn = read(object.to_string().as_bytes(), instance, self.path.display())?;
        let written = UNIX_EPOCH + Duration::from_millis(written_unix_millis);
        // A clock that was set back makes it new.
        Ok(Some((npn, now.duration_since(written).unwrap_or_default())))
    }

    /// Replaces it; `None` removes it.
    ///
    /// # Errors
    /// When the disk is full, broken or read-only; the copy is then as it was.
    pub fn write(&self, object: Option<&Value>, now: SystemTime) -> io::Result<()> {
        let Some(object) = object else {
            let removed = fs::remove_file(&self.path);
            return removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) });
        };
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let written_unix_millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let document = Document { version: VERSION, written_unix_millis, object };
        write_atomically(&self.path, &serde_json::to_vec(&document)?)
    }
}

impl NativePodNetworks for Kept {
    async fn mine(&self, instance: &Ocid) -> Result<Answer, Error> {
        match self.look(instance, SystemTime::now())? {
            Some((npn, age)) => Ok(Answer { npn: Some(npn), age, trouble: None }),
            None => Err(Error::Unavailable("the API server is not asked, and no copy was kept".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        serde_json::json!({
            "kind": "NativePodNetwork", "metadata": { "name": "a" }, "spec": { "id": "ocid1.instance.oc1.iad.a" },
        })
    }

    #[test]
    fn what_was_kept_is_found_again_with_its_age_by_its_instance_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, then) = (Kept::new(folder.path()), UNIX_EPOCH + Duration::from_secs(1_000));
        let instance = "ocid1.instance.oc1.iad.a".parse().unwrap();
        assert_eq!(kept.look(&instance, then).unwrap(), None);
        kept.write(Some(&object()), then).unwrap();
        let npn = NativePodNetwork::parse(object().to_string().as_bytes()).unwrap();
        let minute = Duration::from_secs(60);
        assert_eq!(kept.look(&instance, then + minute).unwrap(), Some((npn.clone(), minute)));
        assert_eq!(kept.look(&instance, then - minute).unwrap(), Some((npn, Duration::ZERO)));
        let other = "ocid1.instance.oc1.iad.b".parse().unwrap();
        assert!(matches!(kept.look(&other, then), Err(Error::OtherInstance { .. })));
        kept.write(None, then).unwrap();
        kept.write(None, then).unwrap();
        assert_eq!(kept.look(&instance, then).unwrap(), None);
    }

    #[test]
    fn a_damaged_copy_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path());
        fs::write(kept.path(), b"{\"version\": 1,").unwrap();
        let error = kept.look(&"ocid1.instance.oc1.iad.a".parse().unwrap(), UNIX_EPOCH).unwrap_err().to_string();
        assert!(error.contains(NPN_COPY_FILE), "{error}");
    }
}
