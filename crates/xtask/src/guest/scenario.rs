//! Scenarios: what a guest has, what is done in it, and what must come out. Each is one file below
//! `crates/xtask/scenarios`.

use crate::dist::Architecture;
use crate::server::Protocol;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Exit code of a command that halfpower refuses for safety.
const REFUSED: i32 = 3;
/// Exit code of a command whose result is not valid.
const INVALID: i32 = 5;
/// What the summary of a survey begins with.
const SUMMARY: &str = "In short";

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// The device or situation, as the table in the docs names it.
    pub device: String,
    /// Whether `./test` runs it; the others run in campaigns.
    #[serde(default)]
    pub short: bool,
    /// The series of the kernels that it runs on; none: [`super::kernel::DEFAULT_SERIES`].
    #[serde(default)]
    pub kernels: Vec<String>,
    /// The architecture of the guest.
    #[serde(default = "default_architecture")]
    pub architecture: Architecture,
    /// The machine of QEMU, if it is not that of most guests.
    pub machine: Option<String>,
    /// Words for the kernel's command line.
    #[serde(default)]
    pub boot: String,
    /// Sizes of drives, such as "64M". Arguments of QEMU call them `d0`, `d1` and so on.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Further arguments of QEMU. `{work}` stands for the folder of this host that servers serve.
    #[serde(default)]
    pub qemu: Vec<String>,
    /// Modules that are loaded before the setup, with parameters: "null_blk zoned=1".
    #[serde(default)]
    pub modules: Vec<String>,
    /// Modules that the setup loads itself, with `insmod /modules/NAME.ko`, or by use.
    #[serde(default)]
    pub spare_modules: Vec<String>,
    /// Programs of this host that the guest needs.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Servers of this host, which serve a folder with the file `disk` at 10.0.2.2. The shell has
    /// their ports as `$NFS_PORT` and so on.
    #[serde(default)]
    pub servers: Vec<Protocol>,
    /// Whether a folder of this host is shared by virtiofs, with the tag `host`.
    #[serde(default)]
    pub virtiofs: bool,
    /// Time limit (s); None: that of the campaign.
    pub seconds: Option<u64>,
    /// Shell commands before the checks; the first that fails ends the scenario.
    #[serde(default)]
    pub setup: String,
    /// Adds the checks of a free block device.
    pub block: Option<Place>,
    /// Adds the checks of a folder in a file system on a disk.
    pub folder: Option<Place>,
    /// Adds checks that a device or file in use is not written to.
    #[serde(default)]
    pub in_use: Vec<InUse>,
    /// Further checks.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// Something that can be measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Its path.
    pub path: String,
    /// Texts that `halfpower target` must print about it.
    pub names: Vec<String>,
    /// What consents to writing to a device, such as its serial number; None: its path.
    pub consent: Option<String>,
}

/// A device or file that is in use, so that writing to it must be refused in spite of consent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InUse {
    /// What it is ("the second disk of a mounted btrfs").
    pub way: String,
    /// Its path.
    pub path: String,
    /// The flag that consents; None: `--destroy-data-on` with the path.
    pub consent: Option<String>,
    /// Further flags.
    #[serde(default)]
    pub flags: String,
    /// What the refusal must say.
    pub reason: String,
}

fn default_architecture() -> Architecture {
    Architecture::X86
}

/// A command in the guest and what must come out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What must be so, as a sentence.
    pub what: String,
    /// A shell command.
    pub run: String,
    /// Its exit code.
    #[serde(default)]
    pub exit: i32,
    /// Texts that its output must contain.
    #[serde(default)]
    pub has: Vec<String>,
    /// Texts that its output must not contain.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Whether its output is a list of features for the docs: lines "NAME yes" or "NAME no REASON".
    #[serde(default)]
    pub lists_features: bool,
    /// Values of the JSON document that it prints, by pointer (RFC 6901).
    #[serde(default)]
    pub json: BTreeMap<String, Expected>,
}

/// A value of a JSON document that must come out.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum Expected {
    /// This truth value.
    Is(bool),
    /// This number.
    Number(f64),
    /// A text that contains this one.
    Text(String),
    /// A number between the two, both included.
    Range([f64; 2]),
}

/// Reads all scenarios, sorted by name.
///
/// # Errors
/// A file cannot be read or is not a scenario.
pub fn all(folder: &Path) -> Result<Vec<Scenario>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let mut scenario: Scenario =
            toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut checks = scenario.block.as_ref().map_or_else(Vec::new, Place::block_checks);
        checks.extend(scenario.folder.iter().flat_map(Place::folder_checks));
        checks.extend(scenario.in_use.iter().map(InUse::check));
        checks.append(&mut scenario.check);
        // Last, because surveys write.
        checks.extend(scenario.block.iter().map(Place::block_survey));
        checks.extend(scenario.folder.iter().map(Place::folder_survey));
        ensure!(!checks.is_empty(), "{} checks nothing", path.display());
        scenario.check = checks;
        found.push(scenario);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl Place {
    /// A device is described, measured, and not written to without consent.
    fn block_checks(&self) -> Vec<Check> {
        let path = &self.path;
        let mut described =
            Check::new("`target` names the device", format!("halfpower target {path}"));
        described.has.clone_from(&self.names);
        let reads = format!("measure {path} --rw randread --bs 4k --iodepth 4");
        let measured = Check::new("random reads at depth 4 are measured", reads);
        let writes = format!("halfpower run {path} --rw randwrite --bs 4k --size 1m --no-store");
        let refused = Check::new("writing needs consent", writes).refused("--destroy-data-on");
        vec![described, measured.shows("requests/s"), refused]
    }

    /// A file system is described, and test files and copies in it are as they must be.
    fn folder_checks(&self) -> Vec<Check> {
        let path = &self.path;
        let mut described = Check::new(
            "`target` names the file system and the disk",
            format!("halfpower target {path}"),
        );
        described.has.clone_from(&self.names);
        let reads = format!(
            "measure {path} --rw randread --bs 4k --iodepth 4 --size 16m >/tmp/text 2>&1 && \
             ls -A {path} && grep -o requests/s /tmp/text"
        );
        let what = "random reads of a test file are measured, which is removed";
        let mut measured = Check::new(what, reads).shows("requests/s");
        measured.lacks.push("halfpower-".to_owned());
        let copy = format!(
            "cp /bin/busybox {path}/a && halfpower copy {path}/a {path}/b && cmp {path}/a {path}/b"
        );
        vec![described, measured, Check::new("a copy is whole", copy)]
    }

    /// A short survey that may write to the device ends with its summary.
    fn block_survey(&self) -> Check {
        let path = &self.path;
        let consent = self.consent.as_ref().unwrap_or(path);
        let run = survey(path, &format!("--size 32m --destroy-data-on={consent}"));
        Check::new("a short survey that may write ends with its summary", run).shows(SUMMARY)
    }

    /// A short survey of a folder ends with its summary.
    fn folder_survey(&self) -> Check {
        let run = survey(&self.path, "--size 16m");
        Check::new("a short survey of the folder ends with its summary", run).shows(SUMMARY)
    }
}

/// The command of a survey of ten seconds. Its result may be invalid, because a guest is slow and
/// noisy.
fn survey(path: &str, flags: &str) -> String {
    let limits = "--budget 10 --max-write 256m";
    format!(
        "cd /tmp && halfpower survey {path} {limits} --no-store {flags} || [ $? -eq {INVALID} ]"
    )
}

impl InUse {
    fn check(&self) -> Check {
        let InUse { way, path, consent, flags, reason } = self;
        let consent = consent.clone().unwrap_or_else(|| format!("--destroy-data-on={path}"));
        let run = format!(
            "halfpower run {path} --rw write --bs 4k --size 1m --no-store {consent} {flags}"
        );
        Check::new(&format!("{way} is refused"), run.trim().to_owned()).refused(reason)
    }
}

impl Check {
    fn new(what: &str, run: String) -> Check {
        let what = what.to_owned();
        let (has, lacks, json) = (Vec::new(), Vec::new(), BTreeMap::new());
        Check { what, run, exit: 0, has, lacks, lists_features: false, json }
    }

    fn shows(mut self, text: &str) -> Check {
        self.has.push(text.to_owned());
        self
    }

    /// The command must be refused for safety, with this reason.
    fn refused(mut self, reason: &str) -> Check {
        self.exit = REFUSED;
        self.shows(reason)
    }

    /// Judges an exit code and the output.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn judge(&self, code: i32, output: &str) -> Result<(), String> {
        if code != self.exit {
            return Err(format!("exit code {code}, not {}", self.exit));
        }
        if let Some(missing) = self.has.iter().find(|text| !output.contains(*text)) {
            return Err(format!("the output lacks '{missing}'"));
        }
        if let Some(wrong) = self.lacks.iter().find(|text| output.contains(*text)) {
            return Err(format!("the output has '{wrong}'"));
        }
        if self.json.is_empty() {
            return Ok(());
        }
        let begin = output.find('{').ok_or("no JSON document")?;
        let mut documents = serde_json::Deserializer::from_str(&output[begin..]).into_iter();
        let document: serde_json::Value =
            documents.next().and_then(Result::ok).ok_or("no JSON document")?;
        for (pointer, expected) in &self.json {
            let value = document.pointer(pointer).ok_or(format!("no value at {pointer}"))?;
            if !expected.matches(value) {
                return Err(format!("{pointer} is {value}, not {expected:?}"));
            }
        }
        Ok(())
    }
}

impl Expected {
    fn matches(&self, value: &serde_json::Value) -> bool {
        match self {
            Expected::Is(expected) => value.as_bool() == Some(*expected),
            Expected::Number(expected) => value.as_f64() == Some(*expected),
            Expected::Text(expected) => value.as_str().is_some_and(|text| text.contains(expected)),
            Expected::Range([least, most]) => {
                value.as_f64().is_some_and(|number| (*least..=*most).contains(&number))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Check {
        toml::from_str(&format!("what = \"x\"\nrun = \"x\"\n{text}")).unwrap()
    }

    #[test]
    fn a_check_names_what_is_wrong() {
        assert_eq!(check("").judge(0, ""), Ok(()));
        assert_eq!(check("exit = 2").judge(0, "").unwrap_err(), "exit code 0, not 2");
        let text = check("has = [\"a\"]\nlacks = [\"b\"]");
        assert_eq!(text.judge(0, "a"), Ok(()));
        assert!(text.judge(0, "").unwrap_err().contains("lacks 'a'"));
        assert!(text.judge(0, "ab").unwrap_err().contains("has 'b'"));
    }

    #[test]
    fn values_of_a_document_are_compared_by_pointer() {
        let json = check("json = { \"/a/0\" = [1, 3], \"/b\" = \"back\", \"/c\" = true }");
        assert_eq!(json.judge(0, "note\n{\"a\":[2],\"b\":\"write back\",\"c\":true}\n"), Ok(()));
        let error = json.judge(0, "{\"a\":[4],\"b\":\"write back\",\"c\":true}").unwrap_err();
        assert!(error.starts_with("/a/0 is 4"), "{error}");
        assert!(json.judge(0, "none").is_err());
    }

    #[test]
    fn the_scenarios_of_this_crate_can_be_read() {
        let folder = crate::repository::root().join("crates/xtask/scenarios");
        for scenario in all(&folder).unwrap() {
            assert!(!scenario.check.is_empty(), "{} checks nothing", scenario.name);
        }
    }
}
