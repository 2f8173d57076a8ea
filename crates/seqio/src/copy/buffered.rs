//! One piece after the other through the page cache: for what is small, cached or in memory. The
//! system moves the bytes itself where nobody has to see them.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Copied, Copying, Method, Result, Watch, by_watcher, on_source, on_target};
use crate::options::Plan;

/// Copies, and sets the size of the destination.
pub(super) fn run(copying: &mut Copying, plan: &Plan, watch: &mut dyn Watch) -> Result<Copied> {
    copying.empty_target().map_err(on_target(None))?;
    let mut holes = copying.holes();
    let left = copying.size.saturating_sub(copying.begin);
    // One more than there is, so that its end is seen by the first read.
    let most = u64::from(plan.request_bytes).min(left.saturating_add(1)) as usize;
    let mut buffer = Vec::new();
    // Files of /proc are said to be empty, and small ones are read and written in no time.
    let asks = left > u64::from(plan.request_bytes) && !watch.wants_data();
    let mut asks = asks && copying.source.is_regular && copying.target.is_regular;
    let (mut at, mut moved_bytes, mut ended) = (copying.begin, 0, false);
    while !ended {
        let stretch = holes.at(at, copying.size.max(at));
        if stretch.is_hole && stretch.until > at {
            watch.hole(at, stretch.until - at).map_err(by_watcher)?;
            at = stretch.until;
            watch.written(at).map_err(by_watcher)?;
            continue;
        }
        if asks {
            match copying.ask_to_copy(at, stretch.until.saturating_sub(at)) {
                Ok(moved @ 1..) => {
                    watch.moved(at, moved).map_err(by_watcher)?;
                    at += moved;
                    moved_bytes += moved;
                    watch.written(at).map_err(by_watcher)?;
                    continue;
                }
                // Where it cannot, or says that there is nothing, reading and writing finds out.
                _ => asks = false,
            }
        }
        buffer.resize(most, 0);
        let read = read(copying, &mut buffer, at).map_err(on_source(at))?;
        if read > 0 {
            let data = &buffer[..read];
            if watch.wants_data() {
                watch.data(at, data).map_err(by_watcher)?;
            }
            watch.moved(at, read as u64).map_err(by_watcher)?;
            write(copying, data, at)?;
            at += read as u64;
            moved_bytes += read as u64;
            watch.written(at).map_err(by_watcher)?;
        }
        // Short of what was asked for: that was the end, unless it has just grown.
        let has_ended = read == 0 || (read < buffer.len() && at >= copying.size);
        ended = has_ended && (read == 0 || !copying.has_grown().map_err(on_source(None))?);
    }
    copying.set_size(at).map_err(on_target(None))?;
    let how = plan.to_string();
    Ok(Copied { bytes: at, moved_bytes, method: Method::Cached, how })
}

fn read(copying: &Copying, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match copying.source.file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn write(copying: &Copying, data: &[u8], at: u64) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        let place = at + done as u64;
        match copying.target.file.write_at(&data[done..], place) {
            Ok(0) => return Err(on_target(place)(io::ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(on_target(place)(error)),
        }
    }
    Ok(())
}
