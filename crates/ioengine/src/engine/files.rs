//! The files of one engine: a single file, several independent files, or the files of a stripe.
//! Requests to a stripe are split into pieces.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::buffer::SlotBuffers;
use crate::engine::EngineSpec;
use crate::error::{Error, ErrorKind};
use crate::request::Request;

/// The files of one engine: a single file, several independent files, or the files of a stripe.
/// [`Request::file`] is the index of the file that a request accesses.
#[derive(Clone, Debug)]
pub struct Files {
    files: Arc<[Arc<File>]>,
    descriptors: Box<[RawFd]>,
    pieces_bits: u32,
}

impl From<Arc<File>> for Files {
    fn from(file: Arc<File>) -> Files {
        Files::of(vec![file], 0)
    }
}

impl From<Vec<Arc<File>>> for Files {
    fn from(files: Vec<Arc<File>>) -> Files {
        Files::of(files, 0)
    }
}

impl Files {
    /// Combines the files of a stripe. Each request is split into at most `1 << pieces_bits`
    /// pieces.
    pub(crate) fn of(files: Vec<Arc<File>>, pieces_bits: u32) -> Files {
        let descriptors = files.iter().map(|file| file.as_raw_fd()).collect();
        Files { files: files.into(), descriptors, pieces_bits }
    }

    /// Returns the descriptor of the file that a request accesses.
    ///
    /// # Panics
    /// If the request's file index is out of range.
    #[inline]
    pub(crate) fn descriptor(&self, request: &Request) -> RawFd {
        self.descriptors[usize::from(request.file)]
    }

    pub(crate) fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// Returns the single file, for the `mmap` engine.
    ///
    /// # Errors
    /// `ErrorKind::Usage` if there are several files.
    pub(crate) fn only(&self) -> Result<Arc<File>, Error> {
        match &*self.files {
            [file] => Ok(Arc::clone(file)),
            _ => Err(Error::new(ErrorKind::Usage, "`engine` mmap maps one file, not several")
                .with_remedy("use another `engine`, or drop `chunk_bytes`")),
        }
    }

    /// Returns the number of slots that an engine needs: one for each piece of each request.
    pub(crate) fn slots(&self, spec: &EngineSpec) -> u32 {
        spec.depth << self.pieces_bits
    }

    /// Allocates the buffers of an engine on these files.
    pub(crate) fn buffers(&self, spec: &EngineSpec) -> Result<SlotBuffers, Error> {
        // `any_thread` is set only by libraries such as the crate `seqio`, which often create
        // engines and therefore reuse memory. A measured engine gets fresh memory.
        let (slot_bytes, pooled) = (spec.slot_bytes as usize, spec.options.any_thread);
        SlotBuffers::shared(spec.depth, self.pieces_bits, slot_bytes, spec.pages, pooled)
    }
}
