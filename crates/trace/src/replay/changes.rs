//! Modifies the requests of a replayed program, for example to test a greater queue depth, larger
//! requests or fewer flushes. Such a replay shows how fast the program would be with the modified
//! requests. The replay does not show whether the program can be rewritten to issue these requests.

use std::fmt;

use crate::replay::{Action, ReplayRequest};

/// Changes to the requests of a replayed program. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of requests that each thread keeps outstanding. `None` keeps the depth of the trace.
    /// The time between the requests of a thread stays the same.
    pub depth: Option<u32>,
    /// Maximum length of joined requests (bytes). Consecutive requests of a thread are joined if
    /// each request starts where the previous request ended. None to join no requests.
    pub merge_bytes: Option<u64>,
    /// Number of writes of a thread after which the thread flushes. None keeps the flushes of the
    /// trace.
    pub flush_every: Option<u32>,
}

impl Changes {
    /// Returns whether nothing is changed.
    pub fn is_none(&self) -> bool {
        *self == Changes::default()
    }
}

impl fmt::Display for Changes {
    /// Formats the changes, such as "depth 8, requests merged up to 65536 bytes, a flush after
    /// 16 writes". Writes nothing if there are no changes. The text is part of stored workloads, so
    /// it must stay the same: otherwise new runs could not be compared with stored runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.depth.map(|depth| format!("depth {depth}")),
            self.merge_bytes.map(|bytes| format!("requests merged up to {bytes} bytes")),
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
    /// The last request, which is held back because the next request may be joined to it.
    pending: Option<ReplayRequest>,
    /// Sum of the gaps before dropped flushes (ns). It is added to the gap of the next request.
    carried_ns: u64,
    writes: u64,
    /// Whether the last flush of the program was like fdatasync(2). None before the first flush.
    data_only: Option<bool>,
}

impl ChangedLane {
    /// Processes the next request of the program. Appends requests to `out` when they are ready to
    /// be issued.
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

    /// Appends the request that was held back. If flushes are changed and there were writes since
    /// the last flush, also appends a flush.
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

/// Returns whether `next` can be joined to `one`. Both must have the same action, `next` must start
/// where `one` ends, and the joined request must not exceed `most_bytes`.
fn joins(one: &ReplayRequest, next: &ReplayRequest, most_bytes: u64) -> bool {
    moves(one.action)
        && one.action == next.action
        && one.offset.checked_add(one.bytes) == Some(next.offset)
        && one.bytes.saturating_add(next.bytes) <= most_bytes
}
