//! What `cat` and `checksum` read: files by name, and standard input.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ioengine::open_file;
use seqio::{Block, Options, Plan, Reader};

/// A stream that is open.
#[derive(Debug)]
pub struct Source {
    reader: Reader,
    /// Standard input where that is a file: whoever reads it next goes on from here.
    shared: Option<File>,
}

/// Whether a name stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// How a name is shown.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The files that were named, or standard input where none was.
pub fn named(files: &[PathBuf]) -> Vec<PathBuf> {
    if files.is_empty() { vec![PathBuf::from("-")] } else { files.to_vec() }
}

/// How much there is to read in a file or device, where that is known (bytes).
pub fn size_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok().filter(|_| !is_stdin(path))?;
    // Nothing else is opened just to look: a pipe would wait for its writer.
    match metadata.file_type().is_block_device() {
        true => File::open(path).and_then(|file| open_file::size_bytes(&file)).ok(),
        false => metadata.is_file().then_some(metadata.len()),
    }
}

impl Source {
    /// Opens a file by name, or what is left of standard input.
    ///
    /// # Errors
    /// What the system says, with the name.
    pub fn open(path: &Path, options: &Options) -> io::Result<Source> {
        if !is_stdin(path) {
            return Ok(Source { reader: options.open(path)?, shared: None });
        }
        let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let place = file.stream_position().ok();
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut reader = options.reader(file.try_clone()?)?;
        let shared = match place.filter(|_| is_file) {
            Some(place) => {
                reader.seek(SeekFrom::Start(place))?;
                Some(file)
            }
            None => None,
        };
        Ok(Source { reader, shared })
    }

    /// How it is read.
    pub fn plan(&self) -> &Plan {
        self.reader.plan()
    }

    /// What comes next; none at the end.
    ///
    /// # Errors
    /// What the system says of reading, with the name.
    pub fn next_block(&mut self) -> io::Result<Option<Block<'_>>> {
        self.reader.next_block()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(file) = &mut self.shared {
            // A position that cannot be set leaves the file as it was found.
            let _ = file.seek(SeekFrom::Start(self.reader.position()));
        }
    }
}
