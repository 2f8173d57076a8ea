//! The subcommands that read and copy files (`copy`, `checksum` and `cat`), from options to exit
//! code. The crate `filecopy` does the work.

pub mod copy;
pub mod checksum;
pub mod cat;
