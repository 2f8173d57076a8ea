//! The files of one engine: a single file, several files (each request selects one), or the members
//! of a stripe. Requests to a stripe are split into pieces that share the memory of a slot.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::buffer::SlotBuffers;
use crate::engine::EngineSpec;
use crate::error::{Error, ErrorKind};
use crate::request::Request;

/// The files of one engine: a single file, several files (each request selects one), or the members
/// of a stripe.
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
    /// Combines several files. [`Request::file`] is the index of the file that a request accesses.
    fn from(files: Vec<Arc<File>>) -> Files {
        Files::of(files, 0)
    }
}

impl Files {
    /// Combines files whose requests are split into up to `1 << pieces_bits` pieces.
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

    /// Returns the descriptors of all files, in the order of the files.
    pub(crate) fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// Returns the only file.
    ///
    /// # Errors
    /// `ErrorKind::Usage`, if there are several files.
    pub(crate) fn only(&self) -> Result<Arc<File>, Error> {
        match &*self.files {
            [file] => Ok(Arc::clone(file)),
            _ => Err(Error::new(ErrorKind::Usage, "`engine` mmap maps one file, not several")
                .with_remedy("use another `engine`, or drop `chunk_bytes`")),
        }
    }

    /// Returns the maximum number of requests in flight, where each piece counts as a request.
    pub(crate) fn slots(&self, spec: &EngineSpec) -> u32 {
        spec.depth << self.pieces_bits
    }

    /// Allocates the buffers of an engine on these files.
    pub(crate) fn buffers(&self, spec: &EngineSpec) -> Result<SlotBuffers, Error> {
        // Only library code such as the crate `seqio` sets `any_thread`. Such code creates engines
        // often, so they reuse memory. A measured engine gets fresh memory.
        let (slot_bytes, pooled) = (spec.slot_bytes as usize, spec.options.any_thread);
        SlotBuffers::shared(spec.depth, self.pieces_bits, slot_bytes, spec.pages, pooled)
    }
}
