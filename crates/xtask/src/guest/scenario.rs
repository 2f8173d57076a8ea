//! Scenarios: the devices of a guest, the commands that run in the guest, and the expected results.
//! Each scenario is one file in `crates/xtask/scenarios`.

use crate::dist::Architecture;
use crate::server::Protocol;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Exit code of a command that halfpower refuses for safety.
const REFUSED: i32 = 3;
/// Exit code of a command whose result is invalid.
const INVALID: i32 = 5;
/// Heading of the summary of a survey.
const SUMMARY: &str = "In short";

/// A scenario, as its file defines it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// File name of the scenario without its extension.
    #[serde(skip)]
    pub name: String,
    /// Description of the device or situation, for the table in the docs.
    pub device: String,
    /// Whether `./test` also runs the scenario. By default, `cargo xtask guest` runs all scenarios.
    #[serde(default)]
    pub short: bool,
    /// Kernel series on which the scenario runs. If empty, the scenario runs on
    /// [`super::kernel::DEFAULT_SERIES`].
    #[serde(default)]
    pub kernels: Vec<String>,
    #[serde(default = "default_architecture")]
    pub architecture: Architecture,
    /// Machine type of QEMU. None means the default type for the architecture.
    pub machine: Option<String>,
    /// Additional parameters for the kernel command line.
    #[serde(default)]
    pub boot: String,
    /// Sizes of the drives, such as "64M". Their ids in QEMU arguments are `d0`, `d1` and so on.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Additional arguments of QEMU. `{work}` is replaced by the path of the folder that the
    /// servers serve.
    #[serde(default)]
    pub qemu: Vec<String>,
    /// Kernel modules that are loaded before the setup, with parameters: "null_blk zoned=1".
    #[serde(default)]
    pub modules: Vec<String>,
    /// Kernel modules that the setup loads with `insmod /modules/NAME.ko`, or that the kernel loads
    /// when they are used.
    #[serde(default)]
    pub spare_modules: Vec<String>,
    /// Programs that are copied from this host into the guest.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Servers that run on this host and serve a folder with the file `disk`. In the guest, their
    /// address is 10.0.2.2, and shell variables such as `$NFS_PORT` contain their ports.
    #[serde(default)]
    pub servers: Vec<Protocol>,
    /// Whether the guest can mount a folder of this host with virtiofs. The mount tag is `host`.
    #[serde(default)]
    pub virtiofs: bool,
    /// Time limit of the guest (s). None means the limit of the option `--seconds`.
    pub seconds: Option<u64>,
    /// Shell commands before the checks. The first command that fails ends the scenario.
    #[serde(default)]
    pub setup: String,
    /// An unused block device for the standard checks of devices. None if these checks are not
    /// wanted.
    pub block: Option<Place>,
    /// A folder on a disk for the standard checks of folders. None if these checks are not wanted.
    pub folder: Option<Place>,
    /// Devices and files in use. Each device or file adds a check, which expects that a write to
    /// the device or file is refused.
    #[serde(default)]
    pub in_use: Vec<InUse>,
    /// Checks in the file of the scenario. The function `all` adds the standard checks.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// A device or folder that can be measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Path of the device or folder.
    pub path: String,
    /// Texts that `halfpower target` must print for this path.
    pub names: Vec<String>,
    /// Value of `--destroy-data-on`, such as the serial number of the device. None means the path.
    pub consent: Option<String>,
}

/// A device or file that is in use. Writing to it must be refused even if the user consents.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InUse {
    /// Description of the device or file ("the second disk of a mounted btrfs").
    pub way: String,
    /// Path of the device or file.
    pub path: String,
    /// Flag that consents to writing. None means `--destroy-data-on=PATH`.
    pub consent: Option<String>,
    /// Additional flags of `halfpower run`.
    #[serde(default)]
    pub flags: String,
    /// Text that the error message must contain.
    pub reason: String,
}

fn default_architecture() -> Architecture {
    Architecture::X86
}

/// A command that runs in the guest, and its expected results.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The expectation that is checked, as a sentence.
    pub what: String,
    pub run: String,
    /// Expected exit code of the command.
    #[serde(default)]
    pub exit: i32,
    /// Texts that the output must contain.
    #[serde(default)]
    pub has: Vec<String>,
    /// Texts that the output must not contain.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Whether the output lists features for the docs, as lines "NAME yes" or "NAME no REASON".
    #[serde(default)]
    pub lists_features: bool,
    /// Expected values in the JSON document that the command prints, by JSON pointer (RFC 6901).
    #[serde(default)]
    pub json: BTreeMap<String, Expected>,
}

/// An expected value in a JSON document.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum Expected {
    /// The value is this boolean.
    Is(bool),
    /// The value is this number.
    Number(f64),
    /// The value is a string that contains this text.
    Text(String),
    /// The value is a number from the first to the second number, inclusive.
    Range([f64; 2]),
}

/// Reads all scenarios, sorted by name.
///
/// # Errors
/// If a file cannot be read or is not a valid scenario.
pub fn all(folder: &Path) -> Result<Vec<Scenario>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let mut scenario: Scenario =
            toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut checks = scenario.block.as_ref().map_or_else(Vec::new, Place::block_checks);
        checks.extend(scenario.folder.iter().flat_map(Place::folder_checks));
        checks.extend(scenario.in_use.iter().map(InUse::check));
        checks.append(&mut scenario.check);
        // Surveys are the last checks, because they write to the device.
        checks.extend(scenario.block.iter().map(Place::block_survey));
        checks.extend(scenario.folder.iter().map(Place::folder_survey));
        ensure!(!checks.is_empty(), "{} has no checks", path.display());
        scenario.check = checks;
        found.push(scenario);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl Place {
    /// Returns the standard checks of devices: the device is described correctly and can be
    /// measured, and writing needs consent.
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

    /// Returns the standard checks of folders: the file system is described correctly, a test file
    /// is measured and removed, and a copy is correct.
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
        let what = "random reads of a test file are measured, and the file is removed";
        let mut measured = Check::new(what, reads).shows("requests/s");
        measured.lacks.push("halfpower-".to_owned());
        let copy = format!(
            "cp /bin/busybox {path}/a && halfpower copy {path}/a {path}/b && cmp {path}/a {path}/b"
        );
        vec![described, measured, Check::new("a copy is identical to its source", copy)]
    }

    /// Returns a check that runs a short survey and expects a summary in the output. The survey may
    /// write to the device.
    fn block_survey(&self) -> Check {
        let path = &self.path;
        let consent = self.consent.as_ref().unwrap_or(path);
        let run = survey(path, &format!("--size 32m --destroy-data-on={consent}"));
        Check::new("a short survey with consent to write prints its summary", run).shows(SUMMARY)
    }

    /// Returns a check that runs a short survey of a folder and expects a summary in the output.
    fn folder_survey(&self) -> Check {
        let run = survey(&self.path, "--size 16m");
        Check::new("a short survey of the folder prints its summary", run).shows(SUMMARY)
    }
}

/// Returns the command of a survey of ten seconds. A result that is invalid (exit code 5) is
/// accepted, because a guest is slow and noisy.
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
        Check::new(&format!("writing to {way} is refused"), run.trim().to_owned()).refused(reason)
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

    /// Changes the expected result: halfpower must refuse the command and print this reason.
    fn refused(mut self, reason: &str) -> Check {
        self.exit = REFUSED;
        self.shows(reason)
    }

    /// Compares the exit code and the output of the command with the expected results.
    ///
    /// # Errors
    /// A one-line message about the first difference.
    pub fn judge(&self, code: i32, output: &str) -> Result<(), String> {
        if code != self.exit {
            return Err(format!("exit code {code}, not {}", self.exit));
        }
        if let Some(missing) = self.has.iter().find(|text| !output.contains(*text)) {
            return Err(format!("the output lacks the text '{missing}'"));
        }
        if let Some(wrong) = self.lacks.iter().find(|text| output.contains(*text)) {
            return Err(format!("the output has the text '{wrong}'"));
        }
        if self.json.is_empty() {
            return Ok(());
        }
        let begin = output.find('{').ok_or("the output has no JSON document")?;
        let mut documents = serde_json::Deserializer::from_str(&output[begin..]).into_iter();
        let document: serde_json::Value =
            documents.next().and_then(Result::ok).ok_or("the output has no JSON document")?;
        for (pointer, expected) in &self.json {
            let value = document
                .pointer(pointer)
                .ok_or(format!("the JSON document has no value at {pointer}"))?;
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
        assert!(text.judge(0, "").unwrap_err().contains("lacks the text 'a'"));
        assert!(text.judge(0, "ab").unwrap_err().contains("has the text 'b'"));
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
            assert!(!scenario.check.is_empty(), "{} has no checks", scenario.name);
        }
    }
}
