//! Changes to what a program did: another depth, larger requests, fewer flushes. They show how fast
//! the program would be with such requests, but not whether it could be changed to make them.

use std::fmt;

use crate::replay::{Action, ReplayRequest};

/// Changes to what a program did; the default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Each thread keeps this many requests outstanding, whatever it waited for in the trace. The
    /// time between its requests is kept.
    pub depth: Option<u32>,
    /// Requests of a thread whose ranges follow each other without a gap are joined, up to this
    /// length (bytes).
    pub merge_bytes: Option<u64>,
    /// One flush after this many writes of a thread, in place of its own flushes.
    pub flush_every: Option<u32>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_none(&self) -> bool {
        *self == Changes::default()
    }
}

impl fmt::Display for Changes {
    /// "depth 8, merged to 65536 bytes, a flush after 16 writes"; empty without changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.depth.map(|depth| format!("depth {depth}")),
            self.merge_bytes.map(|bytes| format!("merged to {bytes} bytes")),
            self.flush_every.map(|writes| match writes {
                1 => "a flush after each write".to_owned(),
                writes => format!("a flush after {writes} writes"),
            }),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Applies changes to the requests of one lane.
#[derive(Debug, Default)]
pub(super) struct ChangedLane {
    lane: u32,
    /// The last request, held back because the next one may be joined to it.
    pending: Option<ReplayRequest>,
    /// Time before dropped flushes, to be added to the gap of the next request (ns).
    carried_ns: u64,
    writes: u64,
    /// Whether the program's last flush was like fdatasync(2); None before its first one.
    data_only: Option<bool>,
}

impl ChangedLane {
    /// Takes a request of the program and appends the requests that replace it.
    pub(super) fn add(
        &mut self,
        changes: &Changes,
        mut request: ReplayRequest,
        out: &mut impl Extend<ReplayRequest>,
    ) {
        request.gap_ns = request.gap_ns.saturating_add(std::mem::take(&mut self.carried_ns));
        if let Action::Flush { data_only } = request.action {
            self.data_only = Some(data_only);
            if changes.flush_every.is_some() {
                self.carried_ns = request.gap_ns;
                return;
            }
        }
        self.lane = request.lane;
        let is_write = request.action == Action::Write;
        match (&mut self.pending, changes.merge_bytes) {
            (Some(pending), Some(most)) if joins(pending, &request, most) => {
                pending.bytes += request.bytes;
                pending.gap_ns = pending.gap_ns.saturating_add(request.gap_ns);
            }
            _ => {
                self.release(changes, out);
                self.pending = Some(request);
            }
        }
        let is_full = changes.merge_bytes.is_none_or(|most| {
            self.pending.is_some_and(|pending| pending.bytes >= most) || !moves(request.action)
        });
        if is_full {
            self.release(changes, out);
        }
        self.count_write(changes, is_write, out);
    }

    /// Counts a write, and appends a flush if one is due.
    fn count_write(
        &mut self,
        changes: &Changes,
        is_write: bool,
        out: &mut impl Extend<ReplayRequest>,
    ) {
        let Some(every) = changes.flush_every.filter(|_| is_write) else { return };
        self.writes += 1;
        if self.writes >= u64::from(every) {
            self.end(changes, out);
        }
    }

    /// Appends the request that was held back, and a flush if there were writes since the last one.
    pub(super) fn end(&mut self, changes: &Changes, out: &mut impl Extend<ReplayRequest>) {
        self.release(changes, out);
        if changes.flush_every.is_some() && self.writes > 0 {
            self.writes = 0;
            let data_only = self.data_only.unwrap_or(true);
            out.extend([ReplayRequest {
                lane: self.lane,
                action: Action::Flush { data_only },
                offset: 0,
                bytes: 0,
                gap_ns: 0,
                outstanding: Some(0),
            }]);
        }
    }

    fn release(&mut self, changes: &Changes, out: &mut impl Extend<ReplayRequest>) {
        let Some(mut request) = self.pending.take() else { return };
        if let Some(depth) = changes.depth {
            let is_flush = matches!(request.action, Action::Flush { .. });
            request.outstanding = Some(if is_flush { 0 } else { depth.saturating_sub(1) });
        }
        out.extend([request]);
    }
}

fn moves(action: Action) -> bool {
    matches!(action, Action::Read | Action::Write)
}

/// Whether `next` can be joined to `one`: the same operation on the range that follows, and not too
/// long together.
fn joins(one: &ReplayRequest, next: &ReplayRequest, most_bytes: u64) -> bool {
    moves(one.action)
        && one.action == next.action
        && one.offset.checked_add(one.bytes) == Some(next.offset)
        && one.bytes.saturating_add(next.bytes) <= most_bytes
}
