//! Replaces the names of struct fields in error messages with command-line flags.
//!
//! The error messages of the libraries contain names of struct fields in backquotes, such as
//! "`depth` 0 is not between 1 and 4096". Users of the program know the flags instead, such as
//! `--iodepth`. A name without a flag is kept.

/// Names in the error messages of the crates `ioengine`, `workload` and `simulator`, each with its
/// flag.
pub const FLAGS: [(&str, &str); 34] = [
    ("arrival", "--rate-iops"),
    ("chunk_bytes", "--chunk"),
    ("depth", "--iodepth"),
    ("direct", "--direct"),
    ("direct=false", "--direct=0"),
    ("distribution", "--random-distribution"),
    ("engine", "--ioengine"),
    ("fdatasync", "--fdatasync"),
    ("files", "--file"),
    ("folded", "--fold"),
    ("fsync", "--fsync"),
    ("fua", "--fua"),
    ("hint", "--hint"),
    ("hipri", "--hipri"),
    ("limit_ns", "--runtime"),
    ("placement", "--placement"),
    ("read_percent", "--rwmixread"),
    ("region_bytes", "--size"),
    ("region_offset", "--offset"),
    ("request_bytes", "--bs"),
    ("request_sizes", "--bssplit"),
    ("rw", "--rw"),
    ("rw=read", "--rw read"),
    ("set", "--set"),
    ("sqthread_poll", "--sqthread-poll"),
    ("stride_bytes", "--stride"),
    ("think", "--thinktime"),
    ("think.requests", "--thinktime-blocks"),
    ("threads", "--numjobs"),
    ("truth", "--truth"),
    ("uncached", "--uncached"),
    ("verify", "--verify"),
    ("write_through", "--write-through"),
    ("zone_append", "--zone-append"),
];

/// Replaces each name in backquotes that has a flag: "`depth` 0" becomes "--iodepth 0".
pub fn in_flags(text: &str) -> String {
    let mut parts = text.split('`');
    let mut told = parts.next().unwrap_or_default().to_owned();
    // Every second part is in backquotes. The last part is not, because no backquote closes it.
    let mut parts = parts.peekable();
    let mut quoted = true;
    while let Some(part) = parts.next() {
        let flag = FLAGS.iter().find(|(name, _)| quoted && *name == part);
        match flag.filter(|_| parts.peek().is_some()) {
            Some((_, flag)) => {
                told.push_str(flag);
                told.push_str(parts.next().unwrap_or_default());
                quoted = true;
            }
            None => {
                told.push('`');
                told.push_str(part);
                quoted = !quoted;
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_names_become_flags_and_other_text_stays() {
        for (text, told) in [
            ("", ""),
            ("no space left", "no space left"),
            ("`depth` 0; use `depth` 1 or more", "--iodepth 0; use --iodepth 1 or more"),
            ("lower `request_bytes`, `depth`", "lower --bs, --iodepth"),
            ("use `direct=false`", "use --direct=0"),
            ("`unheard` of `depth`", "`unheard` of --iodepth"),
            ("a file called `depth", "a file called `depth"),
            ("``", "``"),
        ] {
            assert_eq!(in_flags(text), told, "{text}");
        }
    }
}
