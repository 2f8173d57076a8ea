//! Observes the copy of one file: counts bytes, applies the rate limit, computes the checksum,
//! records progress, and stops the copy at the user's request.

use std::fs::File;
use std::io;

use seqio::copy::Watch;

use crate::content::ContentHasher;
use crate::progress::Progress;
use crate::resume::Resumable;
use crate::settings::Settings;

/// Returns the error that ends a copy after the user stopped it. The caller checks `Settings::stop`
/// to recognise this case.
fn stopped() -> io::Error {
    io::Error::other("stopped")
}

/// Observes the copy of one file.
#[derive(Debug)]
pub(crate) struct Watcher<'a> {
    settings: &'a Settings,
    /// Computes the checksum of the data. None if the copy is not verified.
    pub hasher: Option<ContentHasher>,
    /// Records the progress of the file. None if the copy cannot be resumed.
    pub resumable: Option<(Resumable, &'a File)>,
    /// Offset up to which the copy has been written (bytes).
    pub written: u64,
}

impl<'a> Watcher<'a> {
    /// Returns a watcher for a copy that starts at the offset `begin`.
    pub fn new(settings: &'a Settings, begin: u64) -> Watcher<'a> {
        let hasher = settings.verify.then(ContentHasher::new);
        Watcher { settings, hasher, resumable: None, written: begin }
    }

    fn check(&self) -> io::Result<()> {
        if self.settings.stops() { Err(stopped()) } else { Ok(()) }
    }
}

impl Watch for Watcher<'_> {
    fn wants_data(&self) -> bool {
        self.hasher.is_some()
    }

    fn data(&mut self, _offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(hasher) = &mut self.hasher {
            hasher.data(data);
        }
        Ok(())
    }

    fn moved(&mut self, _offset: u64, bytes: u64) -> io::Result<()> {
        Progress::add(&self.settings.progress.moved_bytes, bytes);
        self.settings.limiter.take(bytes, || self.settings.stops());
        self.check()
    }

    fn hole(&mut self, _offset: u64, bytes: u64) -> io::Result<()> {
        if let Some(hasher) = &mut self.hasher {
            hasher.zeros(bytes);
        }
        self.check()
    }

    fn written(&mut self, up_to: u64) -> io::Result<()> {
        let more = up_to.saturating_sub(self.written);
        Progress::add(&self.settings.progress.bytes, more);
        self.written += more;
        if let Some((resumable, file)) = &mut self.resumable {
            resumable.written(file, up_to);
        }
        self.check()
    }
}
