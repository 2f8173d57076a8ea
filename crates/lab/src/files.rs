//! The subcommands `copy`, `checksum` and `cat`. They are built on the crate `filecopy`.

pub mod copy;
pub mod checksum;
pub mod cat;
