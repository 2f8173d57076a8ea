//! Adds `--plan` to a command of a page, and returns the commands that create its input files.
//!
//! The commands in the pages use files, devices and results that a test does not have. The test
//! replaces them by temporary files in the folder of the session. The tested commands change
//! nothing, because a command with `--plan` only prints.

/// Text that refers to a file or folder in a command, and the shell command that creates a
/// temporary file or folder in its place.
const STAND_INS: [(&str, &str); 12] = [
    ("big.dat", "truncate -s 64m big.dat"),
    ("big.img", "truncate -s 64m big.img"),
    ("filename=data", "truncate -s 64m data"),
    ("'data ", "truncate -s 64m data"),
    ("photos", "mkdir -p photos"),
    (" DIR", "mkdir -p DIR"),
    ("job.fio", "printf '[seq]\\nfilename=x\\nsize=1m\\nrw=read\\nbs=1m\\n' > job.fio"),
    ("./disk.toml", "halfpower simulate --show sata-ssd > disk.toml"),
    ("./mine.toml", "halfpower simulate --show sata-ssd > mine.toml"),
    ("plan.toml", "{ echo 'target = \".\"'; halfpower study depth --show; } > plan.toml"),
    (
        " fio.json",
        "halfpower export latest --format fio-json --output new.json; mv new.json fio.json",
    ),
    ("/mnt/ext4", "mkdir -p ext4 xfs"),
];
/// A command that contains one of these texts needs stored results.
const NEED_RESULTS: [&str; 3] = [" latest", "baseline ", " fio.json"];
/// Shell command that stores the results for [`NEED_RESULTS`].
const RESULTS: &str = "halfpower survey sim:sata-ssd --quick --quiet > results.txt \
                       && halfpower baseline set disk latest";
/// Shell command that creates a sparse file in place of a device. The file name is appended. The
/// file is larger than any offset in the pages.
const DEVICE: &str = "truncate -s 200g";

/// Returns the command with `--plan`, and the commands that create the files that it uses. Pipes
/// and redirections are removed, devices are replaced by files, and `/data` is replaced by the
/// folder of the session.
pub fn as_plan(command: &str) -> (String, Vec<String>) {
    let mut text = without_redirection(command);
    let mut make = Vec::new();
    while let Some((before, after)) = text.split_once("/dev/") {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let file = format!("{}.img", &after[..end]);
        make.push(format!("{DEVICE} {file}"));
        text = format!("{before}{file}{}", &after[end..]);
    }
    if NEED_RESULTS.iter().any(|word| text.contains(word)) {
        make.push(format!("test -e halfpower.db || {{ {RESULTS}; }}"));
    }
    let stand_ins = STAND_INS.iter().filter(|(word, _)| text.contains(word));
    make.extend(stand_ins.map(|(_, command)| (*command).to_string()));
    for volume in ["ext4", "xfs"] {
        text = text.replace(&format!("/mnt/{volume}"), volume);
    }
    let text = text.replace("/data", ".").replacen("./halfpower ", "halfpower ", 1);
    (planned(&text), make)
}

fn planned(text: &str) -> String {
    if text.split_whitespace().any(|word| word == "--plan") {
        return text.to_string();
    }
    // With the subcommand `fio`, flags of halfpower follow `--`. With other subcommands, a command
    // to run follows `--`, so `--plan` must be before `--`.
    match text.split_once(" -- ") {
        None if text.starts_with("halfpower fio ") => format!("{text} -- --plan"),
        Some((own, other)) if !text.starts_with("halfpower fio ") => {
            format!("{own} --plan -- {other}")
        }
        _ => format!("{text} --plan"),
    }
}

/// Truncates a command before the first `|`, `>` or `&` outside single quotes.
fn without_redirection(command: &str) -> String {
    let mut quoted = false;
    let end = command.char_indices().position(|(_, c)| {
        quoted ^= c == '\'';
        !quoted && matches!(c, '|' | '>' | '&')
    });
    let kept: String = command.chars().take(end.unwrap_or(usize::MAX)).collect();
    kept.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_never_names_a_device_or_a_folder_of_the_reader() {
        let (text, make) = as_plan("halfpower study stripe /dev/sdb /dev/sdc /data/x");
        assert_eq!(text, "halfpower study stripe sdb.img sdc.img ./x --plan");
        assert_eq!(make, ["truncate -s 200g sdb.img", "truncate -s 200g sdc.img"]);
    }

    #[test]
    fn a_plan_is_neither_redirected_nor_given_to_another_command() {
        let plan = |command| as_plan(command).0;
        assert_eq!(plan("halfpower cat big.dat | zstd > x"), "halfpower cat big.dat --plan");
        assert_eq!(plan("halfpower soak -- make -j4"), "halfpower soak --plan -- make -j4");
        assert_eq!(plan("halfpower fio --bs=4k"), "halfpower fio --bs=4k -- --plan");
        assert_eq!(plan("./halfpower survey --plan"), "halfpower survey --plan");
        assert_eq!(
            plan("halfpower plan --need 'p99<2 > 1'"),
            "halfpower plan --need 'p99<2 > 1' --plan"
        );
    }
}
