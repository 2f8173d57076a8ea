//! The rows of the schema as flat structs, and the words that its columns may contain.
//!
//! Each row struct is written once. A macro derives the column names, and the code that binds and
//! reads them, from its fields, so that all three agree. Rows have no behaviour and no checks. The
//! columns are described here and in the migration that creates them.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// A struct whose fields are columns of one database table.
pub(crate) trait Columns: Sized {
    /// The names of the columns, in the order of [`Columns::values`].
    const COLUMNS: &'static [&'static str];

    /// The field values in the order of [`Columns::COLUMNS`], ready to be bound.
    fn values(&self) -> Vec<&dyn ToSql>;

    /// Reads the fields by name from a row that has all [`Columns::COLUMNS`].
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self>;

    /// Reads the fields from consecutive columns, in the order of [`Columns::COLUMNS`]. This is
    /// much faster than reading by name.
    fn read_from(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Self>;
}

macro_rules! row {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl Columns for $name {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),+];

            fn values(&self) -> Vec<&dyn ToSql> {
                vec![$(&self.$field),+]
            }

            fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
                Ok(Self { $($field: row.get(stringify!($field))?,)+ })
            }

            fn read_from(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Self> {
                let mut columns = first..;
                let mut next = || columns.next().unwrap_or(usize::MAX);
                Ok(Self { $($field: row.get(next())?,)+ })
            }
        }
    };
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.0.to_sql()
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self)
            }
        }
    };
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$word_doc])* $variant,)+
        }

        impl $name {
            /// The word stored in the database.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.as_str().into())
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                match value.as_str()? {
                    $($word => Ok(Self::$variant),)+
                    other => Err(unknown_text(stringify!($name), other)),
                }
            }
        }
    };
}

fn unknown_text(what: &str, text: &str) -> FromSqlError {
    FromSqlError::Other(format!("{text:?} is not a {what}").into())
}

id! {
    /// The number of a run. It is unique in its database and never reused.
    RunId
}

id! {
    /// The number of a point, unique in its database.
    PointId
}

id! {
    /// The number of a trial, unique in its database.
    TrialId
}

/// The seed of a random generator. Stored as decimal text, because SQLite's integers are signed
/// and a seed uses all 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl ToSql for Seed {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl FromSql for Seed {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        text.parse().map(Self).map_err(|_| unknown_text("seed", text))
    }
}

words! {
    /// The command that made a run. A new word needs a new schema version. An older program then
    /// reports that the database is newer, instead of failing on the unknown word.
    RunKind {
        /// A single workload.
        Run = "run",
        /// A complete characterisation of a target.
        Survey = "survey",
        /// A sweep over several axes.
        Sweep = "sweep",
        /// An experiment of the papers or of a user's plan.
        Study = "study",
        /// Results of another tool.
        Import = "import",
    }
}

words! {
    /// Progress of a run.
    RunState {
        /// The run is still measuring, or its process died.
        Running = "running",
        /// The run completed.
        Finished = "finished",
        /// The user or a crash stopped the run; its trials are valid.
        Interrupted = "interrupted",
        /// An error stopped the run.
        Failed = "failed",
    }
}

words! {
    /// Whether a result can be trusted.
    Verdict {
        /// The intended workload was measured, and the result is steady.
        Valid = "valid",
        /// The intended workload was measured, but with noise, drift or throttling.
        Suspect = "suspect",
        /// Something other than the intended workload was measured.
        Invalid = "invalid",
    }
}

words! {
    /// Direction of requests.
    Operation {
        /// Reads.
        Read = "read",
        /// Writes.
        Write = "write",
        /// A mix of reads and writes; for points only, never for a latency row.
        Mix = "mix",
    }
}

row! {
    /// The facts known at the start of a run: settings, target, host and process.
    NewRun {
        /// Identifies the run, also in copies of the database.
        uuid: String,
        /// Kind of run.
        kind: RunKind,
        /// The command line.
        command_line: String,
        /// The user's label.
        label: Option<String>,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Version of the program.
        version: String,
        /// Version of the program's JSON output.
        schema: u32,
        /// The seed of all random choices of the run.
        seed: Seed,
        /// Id of the process that performs the run.
        pid: u32,
        /// Boot id of the machine while that process runs (`/proc/sys/kernel/random/boot_id`); it
        /// shows whether the process id may be reused.
        boot_id: String,
        /// Kernel, CPU, governor and the like, as JSON.
        host_json: String,
        /// File system, device, scheduler, write cache and the like, as JSON.
        target_json: String,
        /// All settings, explicit and default, as JSON.
        settings_json: String,
    }
}

row! {
    /// The result of a point, from all its trials, at the end of its run.
    PointEnd {
        /// Whether the point can be trusted; `None` if nothing was measured or the run continues.
        verdict: Option<Verdict>,
        /// The reasons, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// The result of a run at its end.
    RunEnd {
        /// Final state: any but [`RunState::Running`].
        state: RunState,
        /// End time, in nanoseconds since 1970-01-01 UTC.
        finished_unix_ns: i64,
        /// The findings of the run's analysis, as JSON.
        findings_json: Option<String>,
        /// Whether the run can be trusted; `None` if nothing was measured.
        verdict: Option<Verdict>,
        /// The reasons, as a JSON list of strings.
        verdict_reasons_json: String,
    }
}

row! {
    /// A stored run: the fields of [`NewRun`], and those of [`RunEnd`] once it has ended.
    RunRow {
        /// Run number.
        id: RunId,
        /// Identifies the run, also in copies of the database.
        uuid: String,
        /// Kind of run.
        kind: RunKind,
        /// The command line.
        command_line: String,
        /// The user's label.
        label: Option<String>,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// End time; `None` while the run is in progress or if its process died.
        finished_unix_ns: Option<i64>,
        /// State of the run.
        state: RunState,
        /// Version of the program.
        version: String,
        /// Version of the program's JSON output.
        schema: u32,
        /// The seed of all random choices of the run.
        seed: Seed,
        /// Id of the process that performs the run.
        pid: u32,
        /// Boot id of the machine while that process runs.
        boot_id: String,
        /// Kernel, CPU, governor and the like, as JSON.
        host_json: String,
        /// File system, device, scheduler, write cache and the like, as JSON.
        target_json: String,
        /// All settings, explicit and default, as JSON.
        settings_json: String,
        /// The findings of the run's analysis, as JSON.
        findings_json: Option<String>,
        /// Whether the run can be trusted; `None` until it ends, or if nothing was measured.
        verdict: Option<Verdict>,
        /// The reasons, as a JSON list of strings.
        verdict_reasons_json: String,
        /// The user's note.
        note: Option<String>,
    }
}

row! {
    /// The columns of a run that say when and where it was made; see [`RunRow`].
    RunHead {
        /// Run number.
        id: RunId,
        /// Identifies the run, also in copies of the database.
        uuid: String,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Version of the program.
        version: String,
        /// Kernel, CPU, governor and the like, as JSON.
        host_json: String,
        /// File system, device, scheduler, write cache and the like, as JSON.
        target_json: String,
    }
}

row! {
    /// What a list of runs shows; see [`RunRow`]. Settings and findings, which may be large, are
    /// not read.
    RunBrief {
        /// Run number.
        id: RunId,
        /// Kind of run.
        kind: RunKind,
        /// The command line.
        command_line: String,
        /// The user's label.
        label: Option<String>,
        /// The user's note.
        note: Option<String>,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// State of the run.
        state: RunState,
        /// Whether the run can be trusted.
        verdict: Option<Verdict>,
        /// Kernel, CPU, governor and the like, as JSON.
        host_json: String,
        /// File system, device, scheduler, write cache and the like, as JSON.
        target_json: String,
    }
}

row! {
    /// Where an imported run came from.
    OriginRow {
        /// The tool with its version, such as `fio-3.33`.
        tool: String,
        /// Format of the document.
        format: String,
        /// The file, as named by the user.
        file: String,
        /// What the tool did not report, as a JSON list of strings.
        missing_json: String,
        /// The tool's output.
        document: String,
    }
}

row! {
    /// A workload of a run with all settings resolved.
    PointRow {
        /// Index in the run's plan, from 0; unique in the run.
        ordinal: u32,
        /// The workload's fio name: `read`, `randwrite`, `randrw` ...
        rw: String,
        /// Direction of the workload's requests.
        operation: Operation,
        /// Access pattern: `sequential`, `random` ...
        pattern: String,
        /// Request size in bytes.
        request_bytes: u64,
        /// Requests outstanding per thread.
        depth: u32,
        /// Number of threads that issue requests.
        threads: u32,
        /// I/O engine.
        ioengine: String,
        /// The caching mode: `buffered`, `direct` ...
        caching: String,
        /// Bytes of the target that are accessed.
        size_bytes: u64,
        /// Share of reads, in percent.
        read_percent: u32,
        /// Request rate of an open loop; `None` for a closed loop.
        rate_requests_per_s: Option<f64>,
        /// The seed of the workload's offsets and data.
        seed: Seed,
        /// The whole workload, as JSON.
        workload_json: String,
    }
}

row! {
    /// One timed execution of a point. `None` means not measured.
    TrialRow {
        /// Index among the trials of its point, from 0; unique in the point.
        ordinal: u32,
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Whether the soaker ran at the same time.
        soaked: bool,
        /// Bytes transferred in the trial.
        bytes: u64,
        /// Requests completed.
        requests: u64,
        /// Requests that failed.
        errors: u64,
        /// Requests that transferred fewer bytes than requested.
        short_transfers: u64,
        /// Bytes read in the trial.
        read_bytes: u64,
        /// Read requests.
        read_requests: u64,
        /// Bytes written in the trial.
        write_bytes: u64,
        /// Write requests.
        write_requests: u64,
        /// Time from the first submission to the end of the trial, including a flush at its end.
        elapsed_ns: u64,
        /// Buffered writes: time from the first submission to the last accepted write.
        accepted_ns: Option<u64>,
        /// Mean latency. All latencies are 0 if no request completed.
        latency_mean_ns: u64,
        /// Minimum latency.
        latency_min_ns: u64,
        /// Median latency.
        latency_p50_ns: u64,
        /// 90th percentile of latency.
        latency_p90_ns: u64,
        /// 99th percentile of latency.
        latency_p99_ns: u64,
        /// 99.9th percentile of latency.
        latency_p99_9_ns: u64,
        /// Maximum latency.
        latency_max_ns: u64,
        /// Calls that submitted requests; requests divided by calls is the mean batch size.
        submit_calls: u64,
        /// Calls that collected completions.
        reap_calls: u64,
        /// CPU time charged to the process: a lower bound of the cost.
        cpu_process_ns: u64,
        /// User time, included in `cpu_process_ns`.
        cpu_user_ns: u64,
        /// System time, included in `cpu_process_ns`.
        cpu_system_ns: u64,
        /// Busy time of all CPUs of the machine.
        cpu_machine_ns: Option<u64>,
        /// CPU time lost by the soaker, without background load: an upper bound of the cost.
        cpu_soaker_ns: Option<u64>,
        /// Instructions retired by the process.
        instructions: Option<u64>,
        /// CPU cycles of the process.
        cycles: Option<u64>,
        /// Reads completed by the block device (this and the next five are from
        /// `/sys/block/*/stat`).
        device_reads: Option<u64>,
        /// Reads merged before reaching the device.
        device_read_merges: Option<u64>,
        /// Sectors of 512 bytes read from the device.
        device_read_sectors: Option<u64>,
        /// Writes completed by the block device.
        device_writes: Option<u64>,
        /// Writes merged before reaching the device.
        device_write_merges: Option<u64>,
        /// Sectors of 512 bytes written to the device.
        device_write_sectors: Option<u64>,
        /// Bytes of the target in the page cache before the trial.
        resident_before_bytes: Option<u64>,
        /// Bytes of the target in the page cache after the trial.
        resident_after_bytes: Option<u64>,
        /// Whether the trial can be trusted.
        verdict: Verdict,
        /// The reasons, as a JSON list of strings.
        verdict_reasons_json: String,
        /// Closed loops: start of the time with a full queue, counted from the start of the trial.
        /// This time begins after at least as many completions as the queue has slots.
        full_queue_start_ns: Option<u64>,
        /// End of the time with a full queue, before the queue drains.
        full_queue_end_ns: Option<u64>,
        /// Bytes per second while the queue was full.
        full_queue_bytes_per_s: Option<f64>,
        /// Requests per second while the queue was full.
        full_queue_requests_per_s: Option<f64>,
        /// What each rank measured, as a JSON list; None for a trial of one process.
        ranks_json: Option<String>,
    }
}

row! {
    /// The columns of a trial that comparisons need; see [`TrialRow`].
    TrialRates {
        /// Start time, in nanoseconds since 1970-01-01 UTC.
        started_unix_ns: i64,
        /// Whether the soaker ran at the same time.
        soaked: bool,
        /// Bytes read in the trial.
        read_bytes: u64,
        /// Read requests.
        read_requests: u64,
        /// Bytes written in the trial.
        write_bytes: u64,
        /// Write requests.
        write_requests: u64,
        /// Time from the first submission to the end of the trial, including a flush at its end.
        elapsed_ns: u64,
        /// Buffered writes: time from the first submission to the last accepted write.
        accepted_ns: Option<u64>,
        /// Median latency.
        latency_p50_ns: u64,
        /// 99th percentile of latency.
        latency_p99_ns: u64,
        /// 99.9th percentile of latency.
        latency_p99_9_ns: u64,
        /// CPU time charged to the process.
        cpu_process_ns: u64,
        /// Whether the trial can be trusted.
        verdict: Verdict,
        /// The reasons, as a JSON list of strings.
        verdict_reasons_json: String,
        /// Start of the time with a full queue.
        full_queue_start_ns: Option<u64>,
        /// End of the time with a full queue.
        full_queue_end_ns: Option<u64>,
        /// Bytes per second while the queue was full.
        full_queue_bytes_per_s: Option<f64>,
        /// Requests per second while the queue was full.
        full_queue_requests_per_s: Option<f64>,
    }
}

row! {
    /// A non-empty bucket of a trial's latency histogram.
    LatencyRow {
        /// Direction: [`Operation::Read`] or [`Operation::Write`].
        operation: Operation,
        /// Lowest latency in the bucket.
        low_ns: u64,
        /// Highest latency in the bucket.
        high_ns: u64,
        /// Number of requests in the bucket.
        count: u64,
    }
}

row! {
    /// Completions in one interval of a trial.
    SeriesRow {
        /// Index in the trial, from 0.
        ordinal: u32,
        /// Start, from the start of the trial.
        start_ns: u64,
        /// Length of the interval.
        length_ns: u64,
        /// Bytes transferred in the interval.
        bytes: u64,
        /// Requests completed.
        requests: u64,
    }
}
