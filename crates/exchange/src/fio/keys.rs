//! fio's options that halfpower ignores, approximates or refuses, unless it translates them.
//!
//! An option that is neither translated nor in one of these tables is unknown and refused.

/// Options that do not change what is measured. Some of them are translated for certain jobs, and
/// ignored for all others.
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

/// Options without an equivalent that change the load only slightly, each with what halfpower does
/// instead.
pub const APPROXIMATED: &[(&str, &str)] = &[
    ("buffer_compress_chunk", RANDOM_DATA),
    ("buffer_compress_percentage", RANDOM_DATA),
    ("buffer_pattern", RANDOM_DATA),
    ("continue_on_error", "a failed request makes the result invalid"),
    ("cpumode", "it belongs to another engine"),
    ("dedupe_mode", RANDOM_DATA),
    ("dedupe_percentage", RANDOM_DATA),
    ("dedupe_global", RANDOM_DATA),
    ("dedupe_working_set_percentage", RANDOM_DATA),
    ("file_service_type", "requests go to the files in turn"),
    ("fsync_on_close", "buffered writes end with one fsync"),
    ("ignore_error", "a failed request makes the result invalid"),
    ("io_submit_mode", "the thread that submits a request also completes it"),
    ("iodepth_batch", BATCHES),
    ("iodepth_batch_complete", BATCHES),
    ("iodepth_batch_complete_max", BATCHES),
    ("iodepth_batch_complete_min", BATCHES),
    ("iodepth_batch_submit", BATCHES),
    ("iodepth_low", BATCHES),
    ("lockmem", "no memory is locked"),
    ("loops", "the load is repeated by --trials"),
    ("max_latency", "a trial does not end at a slow request"),
    ("nice", "threads keep their priority"),
    ("numa_cpu_nodes", "threads are not bound to NUMA nodes; --cpus-allowed binds them to CPUs"),
    ("numa_mem_policy", "memory is not bound to NUMA nodes"),
    ("openfiles", "all files are open"),
    ("prio", "requests keep their priority"),
    ("prioclass", "requests keep their priority"),
    ("rate_iops_min", "a trial does not end at a low rate"),
    ("rate_min", "a trial does not end at a low rate"),
    ("ratemin", "a trial does not end at a low rate"),
    ("sqthread_poll_cpu", "the kernel chooses the CPU of the polling thread"),
    ("startdelay", "jobs start without a delay"),
    ("steadystate", "a trial lasts for all of runtime; --steady-state warms up first"),
    ("ss", "a trial lasts for all of runtime; --steady-state warms up first"),
    ("ss_dur", "it belongs to steadystate"),
    ("ss_ramp", "it belongs to steadystate"),
    ("steadystate_duration", "it belongs to steadystate"),
    ("steadystate_ramp_time", "it belongs to steadystate"),
    ("thinktime_blocks_type", "completed requests are counted"),
    ("verify_backlog", "blocks are checked after all writes"),
    ("verify_backlog_batch", "blocks are checked after all writes"),
];

const RANDOM_DATA: &str = "written blocks hold random bytes, different in each block";
const BATCHES: &str = "all requests with a free slot are submitted at once, in one call";

/// Options that change the load and have no equivalent, each with the feature that halfpower lacks.
pub const REFUSED: &[(&str, &str)] = &[
    ("atomic", "atomic writes"),
    ("block_error_percentiles", "trims"),
    ("blocksize_unaligned", "unaligned requests"),
    ("bs_is_seq_rand", "different sizes of sequential and random requests"),
    ("bs_unaligned", "unaligned requests"),
    ("cgroup", "control groups"),
    ("cmdprio", "priorities of single requests"),
    ("cmdprio_bssplit", "priorities of single requests"),
    ("cmdprio_class", "priorities of single requests"),
    ("cmdprio_percentage", "priorities of single requests"),
    ("create_only", "jobs that only create files"),
    ("exec_postrun", "commands in job files, which are never run"),
    ("exec_prerun", "commands in job files, which are never run"),
    ("experimental_verify", "replayed verification"),
    ("file_append", "appending to files"),
    ("fill_device", "filling a device"),
    ("fill_fs", "filling a file system"),
    ("flow", "jobs whose rates depend on each other"),
    ("flow_id", "jobs whose rates depend on each other"),
    ("flow_sleep", "jobs whose rates depend on each other"),
    ("flow_watermark", "jobs whose rates depend on each other"),
    ("gid", "another user's identity"),
    ("latency_percentile", "a depth that follows a latency"),
    ("latency_run", "a depth that follows a latency"),
    ("latency_target", "a depth that follows a latency"),
    ("latency_window", "a depth that follows a latency"),
    ("max_open_zones", "zoned devices"),
    ("merge_blktrace_file", "recorded loads"),
    ("opendir", "directories of files"),
    ("profile", "fio's profiles"),
    ("rate_ignore_thinktime", "pauses that do not count against a rate"),
    ("read_beyond_wp", "zoned devices"),
    ("read_iolog", "recorded loads"),
    ("sync_file_range", "sync_file_range"),
    ("thinktime_iotime", "pauses by time"),
    ("thinktime_spin", "busy pauses"),
    ("trim_backlog", "trims"),
    ("trim_percentage", "trims"),
    ("trim_verify_zero", "trims"),
    ("uid", "another user's identity"),
    ("verify_interval", "fio's block headers"),
    ("verify_only", "fio's block headers"),
    ("verify_offset", "fio's block headers"),
    ("verify_pattern", "fio's block patterns"),
    ("verify_state_load", "fio's verify state"),
    ("write_iolog", "fio's I/O log; halfpower run --log writes every request"),
    ("zonemode", "zones"),
    ("zonerange", "zones"),
    ("zonesize", "zones"),
    ("zoneskip", "zones"),
];

/// Alternative names of options.
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

/// The main name of an option.
pub fn main_name(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

/// The text in the second column of a table, in the row of `key`.
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
