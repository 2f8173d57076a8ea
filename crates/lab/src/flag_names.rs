//! The flags behind the parameters that libraries name.
//!
//! The crates below this one are used without a command line too, so their errors name parameters,
//! in backquotes, as their types have them: "`depth` 0 is not between 1 and 4096". Here these names
//! become flags, on the way to the user. A name without a flag stays as it is.

/// Parameters of `ioengine`, `workload` and `simulator`, and their flags.
pub const FLAGS: [(&str, &str); 30] = [
    ("arrival", "--rate-iops"),
    ("chunk_bytes", "--chunk"),
    ("depth", "--iodepth"),
    ("direct", "--direct"),
    ("direct=false", "--direct=0"),
    ("distribution", "--random-distribution"),
    ("engine", "--ioengine"),
    ("fdatasync", "--fdatasync"),
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
];

/// A text of a library with flags in place of the parameters in backquotes.
pub fn in_flags(text: &str) -> String {
    let mut parts = text.split('`');
    let mut told = parts.next().unwrap_or_default().to_owned();
    // Every second part lies between backquotes, if there is another one behind it.
    let mut parts = parts.peekable();
    let mut quoted = true;
    while let Some(part) = parts.next() {
        let flag = FLAGS.iter().find(|(name, _)| quoted && *name == part);
        match flag.filter(|_| parts.peek().is_some()) {
            Some((_, flag)) => {
                told.push_str(flag);
                // What follows belongs to no pair of backquotes.
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
    fn parameters_become_flags_and_everything_else_stays() {
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
