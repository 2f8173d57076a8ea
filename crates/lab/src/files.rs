//! Tools that read and copy files, from options to exit code: copies, checksums, and files to
//! standard output. The crate `filecopy` does the work.

pub mod copy;
pub mod checksum;
pub mod cat;
