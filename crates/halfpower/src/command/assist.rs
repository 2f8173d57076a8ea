//! `halfpower assist` (hidden): burns CPU time for each byte on standard input. The self-test uses
//! this process to create a known CPU cost that is not charged to the measuring process.

use std::io::Read;

use ioengine::engine::burn_cpu;
use lab::failure::{Exit, Outcome};

use crate::cli::assist::AssistArgs;

/// Runs until the end of standard input.
pub fn execute(args: &AssistArgs) -> Outcome {
    let (mut input, mut bytes) = (std::io::stdin().lock(), [0_u8; 4096]);
    while let Ok(count @ 1..) = input.read(&mut bytes) {
        burn_cpu(args.cpu_ns * count as u64);
    }
    Ok(Exit::Ok)
}
