//! The files of one engine: a single file, several files selected by each request, or the members
//! of a stripe. Requests to a stripe are cut into pieces that share a slot's memory.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::buffer::SlotBuffers;
use crate::engine::EngineSpec;
use crate::error::{Error, ErrorKind};
use crate::request::Request;

/// The files of one engine: a single file, several files selected by each request, or the files of
/// a stripe.
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
    /// Several files; [`Request::file`] is the index.
    fn from(files: Vec<Arc<File>>) -> Files {
        Files::of(files, 0)
    }
}

impl Files {
    /// Files whose requests are split into up to `1 << pieces_bits` pieces.
    pub(crate) fn of(files: Vec<Arc<File>>, pieces_bits: u32) -> Files {
        let descriptors = files.iter().map(|file| file.as_raw_fd()).collect();
        Files { files: files.into(), descriptors, pieces_bits }
    }

    /// The descriptor of the file that a request is for.
    ///
    /// # Panics
    /// If the request's file index is out of range.
    #[inline]
    pub(crate) fn descriptor(&self, request: &Request) -> RawFd {
        self.descriptors[usize::from(request.file)]
    }

    /// All descriptors, in the order of the files.
    pub(crate) fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// The single file.
    ///
    /// # Errors
    /// `ErrorKind::Usage`, if there are several files: the I/O engine supports only one.
    pub(crate) fn only(&self) -> Result<Arc<File>, Error> {
        match &*self.files {
            [file] => Ok(Arc::clone(file)),
            _ => Err(Error::new(ErrorKind::Usage, "`engine` mmap maps one file, not several")
                .with_remedy("use another `engine`, or drop `chunk_bytes`")),
        }
    }

    /// The number of requests that can be in flight, counting pieces separately.
    pub(crate) fn slots(&self, spec: &EngineSpec) -> u32 {
        spec.depth << self.pieces_bits
    }

    /// Allocates the buffers of an engine on these files.
    pub(crate) fn buffers(&self, spec: &EngineSpec) -> Result<SlotBuffers, Error> {
        // Only libraries set `any_thread`, and they make an engine per file, so these engines reuse
        // memory. A measured engine gets fresh memory.
        let (slot_bytes, pooled) = (spec.slot_bytes as usize, spec.options.any_thread);
        SlotBuffers::shared(spec.depth, self.pieces_bits, slot_bytes, spec.pages, pooled)
    }
}
