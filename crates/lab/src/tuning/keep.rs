//! Stores the results of `tune` in the file that the `seqio` library reads. The file is read before
//! anything is measured, so that an invalid file is reported early. Storing a tuning replaces the
//! file by a new file, which also contains the earlier tunings of other storage.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use seqio::tune::{Setting, Tuned, Tunings};

use crate::failure::{Failure, Outcome};

/// Returns the path of the tuning file.
///
/// # Errors
///
/// Neither XDG_STATE_HOME nor HOME is set to an absolute path.
pub fn path() -> Outcome<PathBuf> {
    let none = "no directory for the tuning file: set XDG_STATE_HOME or HOME to an absolute path, \
        or use --no-store";
    let path = Tunings::path().ok_or_else(|| Failure::usage(none))?;
    // If the path is a symbolic link, its target is replaced later, and the link stays.
    Ok(path.canonicalize().unwrap_or(path))
}

/// Reads the tuning file.
///
/// # Errors
///
/// The file cannot be read, or is invalid.
pub fn load(path: &Path) -> Outcome<Tunings> {
    let shown = path.display();
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Tunings::default()),
        Err(error) => {
            let cause = ioengine::error::cause(&error);
            Err(Failure::failed(format!("reading {shown}: {cause}; remove it, or use --no-store")))
        }
        Ok(text) => Tunings::read(&text).map_err(|why| {
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            Failure::failed(format!(
                "{shown} is not a valid tuning file ({why}); correct or remove it, or use \
                 --no-store"
            ))
        }),
    }
}

/// Stores the settings for one storage. The settings for other storage stay in the file. If `write`
/// is None, the earlier setting for writes stays too.
///
/// # Errors
///
/// The file cannot be read or written.
pub fn keep(
    path: &Path,
    identity: &str,
    read: Setting,
    write: Option<Setting>,
    measured: String,
) -> Outcome<()> {
    let mut tunings = load(path)?;
    let write = write.or_else(|| tunings.storage.get(identity)?.write);
    tunings.storage.insert(identity.to_owned(), Tuned { read, write, measured });
    let half = path.with_file_name(format!("halfpower-{}.part", uuid::Uuid::new_v4()));
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let made = folder.and_then(|()| OpenOptions::new().write(true).create_new(true).open(&half));
    let written = made.and_then(|mut file| {
        let text = tunings.text();
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.and_then(|()| fs::rename(&half, path)).inspect_err(|_| {
            let _ = fs::remove_file(&half);
        })
    });
    written.map_err(|error| {
        let (shown, cause) = (path.display(), ioengine::error::cause(&error));
        Failure::failed(format!("writing {shown}: {cause}; free space there, or use --no-store"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Setting = Setting { request_bytes: 1 << 20, depth: 4 };
    const SLOW: Setting = Setting { request_bytes: 1 << 18, depth: 1 };

    #[test]
    fn tunings_of_other_devices_and_earlier_write_settings_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/tune.toml");
        keep(&path, "a", FAST, Some(SLOW), "then".into()).unwrap();
        keep(&path, "b", SLOW, None, "then".into()).unwrap();
        keep(&path, "a", SLOW, None, "now".into()).unwrap();
        let kept = load(&path).unwrap().storage;
        assert_eq!((kept["a"].read, kept["a"].write), (SLOW, Some(SLOW)));
        assert_eq!((kept["b"].read, kept["b"].write), (SLOW, None));
        assert_eq!(kept["a"].measured, "now");
        let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(names, 1, "no temporary file is left");
    }

    #[test]
    fn an_invalid_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tune.toml");
        fs::write(&path, "my diary").unwrap();
        let failure = keep(&path, "a", FAST, None, "now".into()).unwrap_err();
        assert!(failure.message.contains("is not a valid tuning file"), "{failure}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "my diary");
    }
}
