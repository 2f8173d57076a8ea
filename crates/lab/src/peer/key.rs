//! The secret key that a peer and its client share: 32 random bytes, stored as 64 hexadecimal
//! digits in a file that only its owner can read.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// Length of the key (bytes).
pub const KEY_BYTES: usize = 32;
/// Default name of the key file in the working directory. The server creates a missing file.
pub const FILE_NAME: &str = "halfpower-peer.key";
/// Maximum size of a key file (bytes).
const FILE_BYTES_MAX: u64 = 1024;
/// Permission bits of the group and of other users.
const OTHERS: u32 = 0o077;

/// The key of a peer.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl Key {
    /// Creates a key from its bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Key {
        Key(bytes)
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// The file is missing or contains no key (exit code `Usage`), or other users can access the
    /// file (exit code `Refused`).
    pub fn read(path: &Path) -> Outcome<Key> {
        let name = path.display();
        let failed = |error: std::io::Error| {
            let cause = ioengine::error::cause(&error);
            Failure::usage(format!(
                "reading the key file {name}: {cause}; copy the key file of the halfpower peer \
                 and specify the copy"
            ))
        };
        // The file type is checked before the file is opened, because opening a FIFO would block.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        }
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & OTHERS != 0 {
            return Err(Failure::refused(format!(
                "other users can use the key file {name} (mode {:03o}); run: chmod 600 {name}",
                mode & 0o777
            )));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        parse(text.trim()).map(Key).ok_or_else(|| {
            Failure::usage(format!(
                "the key file {name} contains no key of {} hexadecimal digits; on the client, \
                 replace {name} with a copy of the server's key file; on the server, remove \
                 {name} and start halfpower peer without --key-file to create a new key",
                2 * KEY_BYTES
            ))
        })
    }

    /// Creates a key file with a random key. The file must not exist.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn make(path: &Path) -> Outcome<Key> {
        let failed = |error: std::io::Error| {
            let cause = ioengine::error::cause(&error);
            Failure::failed(format!(
                "creating the key file {}: {cause}; start the peer in a writable directory, or \
                 specify an existing key file with --key-file",
                path.display()
            ))
        };
        let bytes = random_bytes().map_err(failed)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let mut text = String::with_capacity(2 * KEY_BYTES + 1);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Key(bytes))
    }
}

/// Returns random bytes for a secret.
///
/// # Errors
/// The kernel's source of random bytes cannot be read.
pub fn random_bytes() -> std::io::Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; KEY_BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_key_that_was_made_is_read_back_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let made = Key::make(&path).unwrap();
        assert_eq!(Key::read(&path).unwrap(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            Key::make(&path).unwrap_err().exit,
            Exit::Failed,
            "an existing key file must not be replaced"
        );
        assert!(!format!("{made:?}").contains(&format!("{:02x}", made.bytes()[0])));
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Key::make(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let refused = Key::read(&path).unwrap_err();
            assert_eq!(refused.exit, Exit::Refused);
            assert!(refused.message.contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn what_is_no_key_is_a_usage_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let digits = "0".repeat(2 * KEY_BYTES - 1);
        for text in [String::new(), digits.clone(), format!("{digits}x"), format!("{digits}00")] {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).mode(0o600).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(Key::read(&path).unwrap_err().exit, Exit::Usage, "{text}");
            std::fs::remove_file(&path).unwrap();
        }
        assert!(Key::read(folder.path()).is_err() && Key::read(&path).is_err());
    }
}
