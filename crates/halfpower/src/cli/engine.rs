//! What can be typed of how requests are issued, beyond the I/O engine; flags of `run`, `sweep`
//! and `simulate`.

use clap::Args;

use super::parse_bool;

/// What is asked of the I/O engine beyond issuing requests, and flushes in the midst of writing.
#[derive(Args, Debug, Clone, Default)]
pub struct EngineArgs {
    /// io_uring: a thread of the kernel takes submissions (SQPOLL); it spins on a CPU of its own,
    /// one for each thread
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "false",
          help_heading = "Engine")]
    pub sqthread_poll: bool,
    /// io_uring: completions are polled for at the device (IOPOLL); direct only, on a device with
    /// poll queues
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "false",
          help_heading = "Engine")]
    pub hipri: bool,
    /// Buffered requests leave nothing in the page cache (RWF_DONTCACHE)
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "false",
          help_heading = "Engine")]
    pub uncached: bool,
    /// Each write is durable before it completes, asked of the request and not of the open file
    /// (RWF_DSYNC): Forced Unit Access where the device knows it
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = parse_bool, default_value = "false",
          help_heading = "Engine")]
    pub fua: bool,
    /// After every N writes of a thread wait for them and flush the target (fsync)
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub fsync: Option<u32>,
    /// The same with fdatasync
    #[arg(long, value_name = "N", conflicts_with = "fsync", help_heading = "Engine")]
    pub fdatasync: Option<u32>,
}

impl EngineArgs {
    /// Whether any of them is given.
    pub fn is_given(&self) -> bool {
        let EngineArgs { sqthread_poll, hipri, uncached, fua, fsync, fdatasync } = self;
        *sqthread_poll || *hipri || *uncached || *fua || fsync.or(*fdatasync).is_some()
    }
}
