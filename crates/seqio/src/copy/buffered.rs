//! Copies small files, cached files and files in memory through the page cache, one piece at a
//! time. The kernel copies the data (copy_file_range(2)), unless the file is small or a watcher
//! needs the data.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Copied, Copying, Method, Result, Watch, by_watcher, on_source, on_target};
use crate::options::Plan;

/// Copies the data and sets the size of the destination.
pub(super) fn run(copying: &mut Copying, plan: &Plan, watch: &mut dyn Watch) -> Result<Copied> {
    copying.empty_target().map_err(on_target(None))?;
    let mut holes = copying.holes();
    let left = copying.size.saturating_sub(copying.begin);
    // The buffer is one byte larger than the data, so that the first read also detects the end.
    let most = u64::from(plan.request_bytes).min(left.saturating_add(1)) as usize;
    let mut buffer = Vec::new();
    // For small files, copy_file_range gains nothing. Files in /proc report a size of 0, so they
    // count as small.
    let use_copy_range = left > u64::from(plan.request_bytes) && !watch.wants_data();
    let mut use_copy_range =
        use_copy_range && copying.source.is_regular && copying.target.is_regular;
    let (mut at, mut moved_bytes, mut ended) = (copying.begin, 0, false);
    while !ended {
        let stretch = holes.at(at, copying.size.max(at));
        if stretch.is_hole && stretch.until > at {
            watch.hole(at, stretch.until - at).map_err(by_watcher)?;
            at = stretch.until;
            watch.written(at).map_err(by_watcher)?;
            continue;
        }
        if use_copy_range {
            match copying.copy_range(at, stretch.until.saturating_sub(at)) {
                Ok(moved @ 1..) => {
                    watch.moved(at, moved).map_err(by_watcher)?;
                    at += moved;
                    moved_bytes += moved;
                    watch.written(at).map_err(by_watcher)?;
                    continue;
                }
                // If the kernel cannot copy or copies nothing, a read and a write are used instead.
                // The read or the write then returns the error, or the read finds the end of the
                // file.
                _ => use_copy_range = false,
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
        // A short read means that the file has ended, unless the file has just grown.
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
