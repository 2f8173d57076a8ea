//! Tables of fio's options that halfpower ignores, approximates or refuses.
//!
//! The tables apply to options that were not translated. An option that is neither translated nor
//! in a table is unknown and is refused.

/// Options that do not change what is measured. Some of these options are translated for certain
/// jobs and ignored for all other jobs.
pub const IGNORED: &[&str] = &[
    "allow_file_create",
    "allow_mounted_write",
    "allrandrepeat",
    "bwavgtime",
    "clat_percentiles",
    "clocksource",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "cpus_allowed_policy",
    "cpumask",
    "description",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "disk_util",
    "do_verify",
    "error_dump",
    "exit_what",
    "exitall",
    "exitall_on_error",
    "fadvise_hint",
    "fallocate",
    "filesize",
    "fixedbufs",
    "gtod_cpu",
    "gtod_reduce",
    "group_reporting",
    "invalidate",
    "iopsavgtime",
    "kb_base",
    "lat_percentiles",
    "lockfile",
    "log_avg_msec",
    "log_compression",
    "log_compression_cpus",
    "log_hist_coarseness",
    "log_hist_msec",
    "log_max_value",
    "log_offset",
    "log_prio",
    "log_store_compressed",
    "log_unix_epoch",
    "new_group",
    "nonvectored",
    "norandommap",
    "overwrite",
    "per_job_logs",
    "pre_read",
    "random_generator",
    "randrepeat",
    "rate_cycle",
    "ratecycle",
    "refill_buffers",
    "registerfiles",
    "scramble_buffers",
    "significant_figures",
    "slat_percentiles",
    "softrandommap",
    "stats",
    "thread",
    "threads",
    "unified_rw_reporting",
    "unit_base",
    "unlink",
    "userspace_reap",
    "verify_async",
    "verify_dump",
    "verify_fatal",
    "verify_state_save",
    "write_bw_log",
    "write_hist_log",
    "write_iops_log",
    "write_lat_log",
];

/// Options that change the load only slightly and have no equivalent in halfpower. The second
/// column says what halfpower does instead.
pub const APPROXIMATED: &[(&str, &str)] = &[
    ("buffer_compress_chunk", RANDOM_DATA),
    ("buffer_compress_percentage", RANDOM_DATA),
    ("buffer_pattern", RANDOM_DATA),
    ("continue_on_error", "a failed request makes the result invalid"),
    ("cpumode", "the option has an effect only with the engine cpuio"),
    ("dedupe_mode", RANDOM_DATA),
    ("dedupe_percentage", RANDOM_DATA),
    ("dedupe_global", RANDOM_DATA),
    ("dedupe_working_set_percentage", RANDOM_DATA),
    ("file_service_type", "requests use the files in turn (round robin)"),
    ("fsync_on_close", "one fsync follows the last buffered write"),
    ("ignore_error", "a failed request makes the result invalid"),
    ("io_submit_mode", "the thread that submits a request also completes it"),
    ("iodepth_batch", BATCHES),
    ("iodepth_batch_complete", BATCHES),
    ("iodepth_batch_complete_max", BATCHES),
    ("iodepth_batch_complete_min", BATCHES),
    ("iodepth_batch_submit", BATCHES),
    ("iodepth_low", BATCHES),
    ("lockmem", "no memory is locked"),
    ("loops", "use --trials to repeat the load"),
    ("max_latency", "a trial continues after a slow request"),
    ("nice", "threads keep their priority"),
    ("numa_cpu_nodes", "threads are not bound to NUMA nodes; --cpus-allowed binds them to CPUs"),
    ("numa_mem_policy", "memory is not bound to NUMA nodes"),
    ("openfiles", "all files are open at the same time"),
    ("prio", "requests keep their priority"),
    ("prioclass", "requests keep their priority"),
    ("rate_iops_min", "a trial continues even if the rate is low"),
    ("rate_min", "a trial continues even if the rate is low"),
    ("ratemin", "a trial continues even if the rate is low"),
    ("sqthread_poll_cpu", "the kernel chooses the CPU of the polling thread"),
    ("startdelay", "jobs start without a delay"),
    ("steadystate", "a trial lasts the full runtime; to warm up first, use --steady-state"),
    ("ss", "a trial lasts the full runtime; to warm up first, use --steady-state"),
    ("ss_dur", "the option has an effect only with steadystate"),
    ("ss_ramp", "the option has an effect only with steadystate"),
    ("steadystate_duration", "the option has an effect only with steadystate"),
    ("steadystate_ramp_time", "the option has an effect only with steadystate"),
    ("thinktime_blocks_type", "thinktime_blocks counts completed requests"),
    ("verify_backlog", "blocks are verified only after all writes"),
    ("verify_backlog_batch", "blocks are verified only after all writes"),
];

const RANDOM_DATA: &str = "every written block contains different random bytes";
const BATCHES: &str = "each submit call fills the queue up to iodepth";

/// Options that change the load and have no equivalent in halfpower. The second column has the
/// feature that halfpower lacks.
pub const REFUSED: &[(&str, &str)] = &[
    ("atomic", "atomic writes"),
    ("block_error_percentiles", "trims"),
    ("blocksize_unaligned", "unaligned requests"),
    ("bs_is_seq_rand", "different request sizes for sequential and random requests"),
    ("bs_unaligned", "unaligned requests"),
    ("cgroup", "control groups"),
    ("cmdprio", "priorities of individual requests"),
    ("cmdprio_bssplit", "priorities of individual requests"),
    ("cmdprio_class", "priorities of individual requests"),
    ("cmdprio_percentage", "priorities of individual requests"),
    ("create_only", "jobs that only create files"),
    ("exec_postrun", "running commands from job files"),
    ("exec_prerun", "running commands from job files"),
    ("experimental_verify", "verification that replays the writes"),
    ("file_append", "appending to files"),
    ("fill_device", "filling a device"),
    ("fill_fs", "filling a file system"),
    ("flow", "jobs whose rates depend on each other"),
    ("flow_id", "jobs whose rates depend on each other"),
    ("flow_sleep", "jobs whose rates depend on each other"),
    ("flow_watermark", "jobs whose rates depend on each other"),
    ("gid", "another user's identity"),
    ("latency_percentile", "a queue depth that adapts to a latency target"),
    ("latency_run", "a queue depth that adapts to a latency target"),
    ("latency_target", "a queue depth that adapts to a latency target"),
    ("latency_window", "a queue depth that adapts to a latency target"),
    ("max_open_zones", "zoned devices"),
    ("merge_blktrace_file", "job files that replay recorded requests"),
    ("opendir", "directories of files"),
    ("profile", "fio's profiles"),
    ("rate_ignore_thinktime", "rate limits that ignore pauses"),
    ("read_beyond_wp", "zoned devices"),
    ("read_iolog", "job files that replay recorded requests"),
    ("sync_file_range", "sync_file_range"),
    ("thinktime_iotime", "pauses after a given time instead of after a number of requests"),
    ("thinktime_spin", "pauses that keep the CPU busy"),
    ("trim_backlog", "trims"),
    ("trim_percentage", "trims"),
    ("trim_verify_zero", "trims"),
    ("uid", "another user's identity"),
    ("verify_interval", "fio's block headers"),
    ("verify_only", "fio's block headers"),
    ("verify_offset", "fio's block headers"),
    ("verify_pattern", "fio's block patterns"),
    ("verify_state_load", "fio's verify state"),
    ("write_iolog", "fio's I/O log (halfpower run --log writes a log of all requests)"),
    ("zonemode", "zones"),
    ("zonerange", "zones"),
    ("zonesize", "zones"),
    ("zoneskip", "zones"),
];

/// Alternative names of options, each with the main name.
const ALIASES: &[(&str, &str)] = &[
    ("ba", "blockalign"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("fadvise", "fadvise_hint"),
    ("io_limit", "io_size"),
    ("iomem", "mem"),
    ("nr_files", "nrfiles"),
    ("readwrite", "rw"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
];

/// Returns the main name of an option, for example `bs` for `blocksize`.
pub fn main_name(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

/// Returns the text for the option `key` in a table. None if the table does not contain the option.
pub fn of<'a>(table: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    table.iter().find(|(known, _)| *known == key).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_option_has_one_row() {
        let rows = APPROXIMATED.iter().chain(REFUSED).map(|(key, _)| *key);
        let names: Vec<&str> = rows.chain(IGNORED.iter().copied()).collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len());
        assert!(names.iter().all(|name| main_name(name) == *name));
    }
}
