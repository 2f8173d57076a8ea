//! One piece after the other through the page cache: for what is small, hot or in memory.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Copied, Copying, Method, Watch};
use crate::options::Plan;

/// Copies, and sets the size of the destination.
pub(super) fn run(copying: &mut Copying, plan: &Plan, watch: &mut dyn Watch) -> io::Result<Copied> {
    copying.empty_target().map_err(|error| copying.on_target(error))?;
    let mut holes = copying.holes();
    let left = copying.size.saturating_sub(copying.begin);
    // One more than there is, so that its end is seen by the first read.
    let most = u64::from(plan.request_bytes).min(left.saturating_add(1));
    let mut buffer = vec![0; most as usize];
    let (mut at, mut moved_bytes) = (copying.begin, 0);
    let mut ended = false;
    while !ended {
        let stretch = holes.at(at, copying.size.max(at));
        if stretch.hole && stretch.until > at {
            watch.hole(at, stretch.until - at)?;
            at = stretch.until;
            watch.written(at)?;
            continue;
        }
        let read = read(copying, &mut buffer, at)?;
        if read > 0 {
            let data = &buffer[..read];
            watch.data(at, data)?;
            copying.target.file.write_all_at(data, at).map_err(|e| copying.on_target(e))?;
            at += read as u64;
            moved_bytes += read as u64;
            watch.written(at)?;
        }
        // Short of what was asked for: that was the end, unless it has just grown.
        ended = read == 0 || (read < buffer.len() && at >= copying.size && !copying.has_grown()?);
    }
    copying.set_size(at).map_err(|e| copying.on_target(e))?;
    let how = plan.to_string();
    Ok(Copied { bytes: at, moved_bytes, method: Method::Cached, how })
}

fn read(copying: &Copying, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match copying.source.file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(|error| copying.on_source(error)),
        }
    }
}
