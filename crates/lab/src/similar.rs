//! Suggests the known name that is most similar to a mistyped one ("did you mean").

/// Minimum similarity of a name that is suggested (Jaro-Winkler, 0 to 1).
const SIMILAR_MIN: f64 = 0.9;

/// Returns the name that is most similar to `wrong`. None if no name is similar enough.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('_', "-");
    // Numbers and very short names are not suggested, because they can be similar by chance.
    let is_name = |name: &&str| name.len() > 2 && !name.starts_with(|c: char| c.is_ascii_digit());
    let names = names.into_iter().filter(is_name);
    let alike = |name: &'a str| (strsim::jaro_winkler(&plain(wrong), &plain(name)), name);
    let best = names.map(alike).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= SIMILAR_MIN).map(|(_, name)| name)
}

/// Replaces the list of allowed names in an error by the most similar name. For example, the error
/// `unknown hint 'sequental'; one of normal, sequential` becomes `unknown hint 'sequental'; did you
/// mean sequential?`. The mistyped name must be in quotes, or be the value of the flag with which
/// the error begins. Other errors are returned unchanged.
pub fn with_offer(error: &str) -> String {
    let offered = error.split_once("; one of ").or_else(|| error.split_once("; use "));
    let offer = offered.and_then(|(what, list)| {
        // A text with spaces, such as "a file" in "use a file, or a device", is not a name.
        let list = list.strip_prefix("one of ").unwrap_or(list);
        let items = list.split(", ").flat_map(|item| item.split(" or "));
        let names: Vec<&str> = items.take_while(|item| !item.contains(' ')).collect();
        let names = Some(names).filter(|names| names.len() > 1)?;
        Some((what, nearest(mistyped(what)?, names)?))
    });
    match offer {
        Some((what, name)) => format!("{what}; did you mean {name}?"),
        None => error.to_owned(),
    }
}

/// Finds the mistyped name in an error.
fn mistyped(what: &str) -> Option<&str> {
    let quoted = what.rsplit('\'').nth(1);
    let of_flag =
        || what.strip_prefix("--")?.split_once(' ')?.1.split_once(':').map(|(word, _)| word);
    quoted.or_else(of_flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_offered_if_it_is_similar_enough() {
        let names = ["depth", "request-size", "random"];
        assert_eq!(nearest("dpeth", names), Some("depth"));
        assert_eq!(nearest("request_sizes", names), Some("request-size"));
        assert_eq!(nearest("network", names), None);
        assert_eq!(nearest("15", ["1", "14", "16"]), None);
    }

    #[test]
    fn an_error_with_a_list_of_names_gets_the_probable_one_instead() {
        let cases = [
            ("unknown I/O engine 'io_urin'; one of auto, io_uring", "; did you mean io_uring?"),
            (
                "--rw randrad: unknown direction; use read, randread or rw",
                "; did you mean randread?",
            ),
            ("--set disk: no such value; one of chunk, disks, volume", "; did you mean disks?"),
            ("unknown engine 'xyz'; one of auto, io_uring", "; one of auto, io_uring"),
            ("unknown kernel 'stream'; one of store, triad", "; one of store, triad"),
            ("no such file; create it", "no such file; create it"),
            ("it's used; use a file", "it's used; use a file"),
            ("'files' is a folder; use a file, or a device", "; use a file, or a device"),
            ("--set a.rate: unknown; use one of disks, ways, or a path such as a.rate", "a.rate"),
            ("--set disk: unknown; use one of disks, ways, or a path", "; did you mean disks?"),
            ("'fil' is a folder; use a file", "; use a file"),
        ];
        for (error, end) in cases {
            assert!(with_offer(error).ends_with(end), "{}", with_offer(error));
        }
    }
}
