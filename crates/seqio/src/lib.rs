//! The fastest sequential reader and writer of files on Linux, behind the traits of the standard
//! library.
//!
//! What they do is in the modules `reader` and `writer`; how they go about it is decided in
//! `options` by what `storage` and `tune` know. `flight` brings requests to their end.
#![forbid(unsafe_code)]

mod error;
mod storage;
pub mod tune;
mod options;
mod holes;
mod ahead;
mod flight;
mod opened;
mod reader;
mod writer;
pub mod copy;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use copy::copy;
pub use error::raw_os_error;
pub use ioengine::Personality;
pub use options::{Cache, Options, Plan};
pub use reader::{Block, Reader};
pub use storage::{Kind, Storage};
pub use writer::Writer;
