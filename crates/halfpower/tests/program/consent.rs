//! Tests the promise of the whole program: no combination of flags without `--destroy-data-on` or
//! `--overwrite` changes a byte of a file or device that halfpower did not create.
//!
//! Every subcommand in the help is run with many combinations of flags, including wrong
//! permissions, in a directory with files and devices that must not change. After each command
//! line, the size, links and modification time of every file are checked. After each subcommand,
//! the checksums of all files and devices are checked. A new subcommand that is missing in
//! `lines_for` fails the test.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::fixture::{KIB, MIB, Place, Running, noise, or_skip, root, whole};
use crate::volume::{LoopDevice, Volume, make};

/// Number of command lines of `run` to try. Half as many are tried for `sweep` and for `survey`.
const LINES: usize = 400;
/// Names of the studies that write to their targets.
const WRITING: [&str; 9] = [
    "depth",
    "allocate",
    "write-through",
    "write-cache",
    "alignment",
    "random",
    "burst",
    "stripe",
    "raid",
];

/// Generator of reproducible random choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % count
    }

    fn one_of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// The metadata of a file that must not change.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    inode: u64,
    bytes: u64,
    links: u64,
    mode: u32,
    changed: (i64, i64),
    leads_to: Option<PathBuf>,
}

fn shape_of(path: &Path) -> Shape {
    let metadata = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    Shape {
        inode: metadata.ino(),
        bytes: metadata.len(),
        links: metadata.nlink(),
        mode: metadata.mode(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
        leads_to: fs::read_link(path).ok(),
    }
}

fn checksum(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// A working directory with files and devices that no command line may change.
struct Treasure {
    place: Place,
    volume: Volume,
    device: LoopDevice,
    parts: [String; 2],
    shapes: BTreeMap<PathBuf, Shape>,
    contents: BTreeMap<PathBuf, u64>,
    on_device: u64,
}

impl Treasure {
    fn new() -> Result<Treasure, String> {
        root()?;
        let place = Place::new();
        place.file("plain", 2 * MIB);
        place.file("one", 256 * KIB);
        place.file("readonly", 256 * KIB);
        place.file_of_holes("sparse", MIB);
        place.file("empty", 0);
        let at = |name: &str| place.path(name);
        fs::hard_link(at("one"), at("two")).unwrap();
        fs::set_permissions(at("readonly"), fs::Permissions::from_mode(0o444)).unwrap();
        for (link, to) in [("link", "plain"), ("dangling", "nothing"), ("folder_link", "folder")] {
            symlink(to, at(link)).unwrap();
        }
        fs::create_dir(at("folder")).unwrap();
        let diary = "<!DOCTYPE html><title>halfpower and I</title>";
        for (name, text) in [
            ("folder/inner", "inner"),
            ("precious.txt", "dear diary"),
            ("precious.html", diary),
            ("halfpower.html.part", "half a diary"),
            ("page.html.part", "half a diary"),
            ("page.part", "half a diary"),
            ("new.db-journal", "a journal of another kind"),
            ("newer.db-wal", "a journal of another kind"),
            ("halfpower-mine.test", "not a test file of halfpower's"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("foreign.db"), [b"SQLite format 3\0".as_slice(), &[0; 4096]].concat())
            .unwrap();
        // Without a stored run, subcommands such as `calibrate` would fail before they could
        // overwrite a file.
        let sweep = "sweep --ioengine delay --truth fixed=1ms --rw randread --bs 4k,64k";
        place.does(&format!("{sweep} --iodepth 1,4 --runtime 0.05 --trials 1 --db swept.db"));
        let plan = place.does("calibrate --db swept.db --out fresh.toml --plan").stdout;
        assert!(plan.contains("fit a system to 2 points"), "{plan}");
        let volume = Volume::new(24 * MIB)?;
        fs::write(volume.folder().join("mounted"), noise(MIB)).unwrap();
        let device = LoopDevice::new(24 * MIB)?;
        let parts = [device.partition(1, 1, 8)?, device.partition(2, 10, 8)?];
        make(&["mkfs.ext4", "-q", "-F", &parts[0]])?;
        let on_device = checksum(&device.content());
        let mut treasure = Treasure {
            place,
            volume,
            device,
            parts,
            shapes: BTreeMap::new(),
            contents: BTreeMap::new(),
            on_device,
        };
        treasure.forge_journal();
        treasure.remember();
        Ok(treasure)
    }

    /// Writes journal entries that falsely list the user's files as test files of halfpower.
    fn forge_journal(&self) {
        let at = |name: &str| self.place.path(name);
        for (number, name) in ["plain", "halfpower-mine.test", "link", "folder"].iter().enumerate()
        {
            let path = at(name);
            let (wrong, none) = (format!("[1,{}]", u64::MAX >> 2), "null".to_owned());
            let right = format!("[{},{}]", shape_of(&path).inode, shape_of(&path).inode);
            let identities = if number == 1 { vec![wrong, none] } else { vec![wrong, none, right] };
            for (kind, identity) in identities.iter().enumerate() {
                let entry = format!(
                    r#"{{"path":{path:?},"identity":{identity},"pid":1,"boot_id":"another"}}"#
                );
                self.place.forge_journal_entry(&format!("{number}-{kind}"), &entry);
            }
        }
    }

    fn remember(&mut self) {
        let mut folders = vec![self.place.path(""), self.volume.folder().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                    continue;
                }
                if !path.is_symlink() {
                    self.contents.insert(path.clone(), checksum(&fs::read(&path).unwrap()));
                }
                self.shapes.insert(path.clone(), shape_of(&path));
            }
        }
    }

    /// Checks the metadata of all files. This is fast enough to do after each command line.
    #[track_caller]
    fn looks_as_before(&self, line: &str) {
        for (path, shape) in &self.shapes {
            assert_eq!(&shape_of(path), shape, "{} changed by halfpower {line}", path.display());
        }
    }

    #[track_caller]
    fn is_as_before(&self, verb: &str) {
        self.looks_as_before(verb);
        for (path, before) in &self.contents {
            let now = checksum(&fs::read(path).unwrap());
            assert_eq!(now, *before, "{} changed by halfpower {verb}", path.display());
        }
        let now = checksum(&self.device.content());
        assert_eq!(now, self.on_device, "the device was written by halfpower {verb}");
    }

    /// Returns all paths to try as a target.
    fn targets(&self) -> Vec<String> {
        let folder = self.volume.folder().display();
        let names = "plain one two link dangling sparse empty readonly precious.txt ./plain \
                     folder_link/inner folder_link folder . /dev halfpower-mine.test nothing";
        let mut targets: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        targets.push(self.place.path("plain").display().to_string());
        targets.push(format!("{folder}/mounted"));
        targets.push(folder.to_string());
        // The devices are listed several times so that they are chosen more often.
        for _ in 0..3 {
            targets.extend(self.parts.clone());
            targets.push(self.device.path().to_owned());
        }
        for device in [&self.device, &self.volume.device] {
            targets.push(device.path().to_owned());
            targets.push(device.image().display().to_string());
        }
        targets
    }

    /// Returns permission flags that do not permit writing to `target`. Some targets (for example
    /// symbolic links and mounted devices) must never be written. For these, the flags may include
    /// the right permission.
    fn wrong_consent(&self, target: &str, dice: &mut Dice) -> String {
        let never = ["one", "two", "link"].contains(&target)
            || target == self.volume.device.path()
            || [&self.device, &self.volume.device].iter().any(|d| Path::new(target) == d.image());
        let shorter = &target[..target.len() - 1];
        let base = Path::new(target).file_name().map(|n| n.to_string_lossy().into_owned());
        let base = base.unwrap_or_default();
        let other_device = match target == self.parts[1] {
            true => self.parts[0].clone(),
            false => self.parts[1].clone(),
        };
        match dice.below(if never { 14 } else { 12 }) {
            0 => "--overwrite=precious.txt".to_owned().replace(target, "folder/inner"),
            1 => "--overwrite=. --overwrite=/ --overwrite=..".to_owned(),
            2 => format!("--overwrite={}", target.to_uppercase()),
            3 => format!("--overwrite={shorter} --destroy-data-on={shorter}"),
            4 => "--overwrite=link --overwrite=dangling".to_owned(),
            5 => format!("--overwrite={target}/ --overwrite={target}*"),
            6 => format!("--destroy-data-on=/ --destroy-data-on={base}"),
            7 => format!("--destroy-data-on={other_device}"),
            8 => format!("--destroy-data-on={base} --destroy-data-on=/dev//{base}"),
            9 => format!("--destroy-data-on={}", self.place.path("").display()),
            10 => format!("--destroy-data-on={}", target.to_uppercase()),
            11 => String::new(),
            _ => format!("--overwrite={target} --destroy-data-on={target}"),
        }
    }

    /// Returns a command line of `run` or `sweep`.
    fn workload(&self, verb: &str, dice: &mut Dice) -> String {
        let targets = self.targets();
        let target = &targets[dice.below(targets.len())];
        let mut words = vec![verb.to_owned(), target.clone()];
        if dice.below(8) == 0 {
            let more = &targets[dice.below(targets.len())];
            // A wrong permission for one target might be right for the other, so no permission is
            // given.
            words.push(more.clone());
        } else {
            words.push(self.wrong_consent(target, dice));
        }
        let rw = ["read", "write", "randwrite", "rw", "randrw", "randread", "write", "write"];
        let rw = dice.one_of(&rw);
        words.push(format!("--rw {rw}"));
        if rw.ends_with("write") {
            let allocations = ["truncate", "extend", "preallocated", "preallocated"];
            let allocation = dice.one_of(&allocations);
            words.push(format!("--allocation {allocation}"));
        }
        let engines = [
            "",
            "",
            "--ioengine sync",
            "--ioengine threads",
            "--ioengine mmap --direct=0",
            "--ioengine sync --fsync 3",
            "--ioengine libaio --iodepth 4 --direct=1",
            "--ioengine io_uring --iodepth 4",
            "--ioengine null",
            "--ioengine sync --inject write-misdirect:64k@1",
            "--ioengine delay --truth fixed=1ms",
        ];
        let sizes = ["64k", "8k", "2m", "64k --offset 4k", "64k --time-based --runtime 0.02"];
        let log = format!("--log {}", dice.one_of(&["precious.txt", "link", "dangling"]));
        let others = ["", "", "", "--plan", "--json", "--invalidate=0", "--stride 64k", &log];
        words.push(format!("--size {}", dice.one_of(&sizes)));
        // One command line in six specifies a database, mostly a file that is not a database. The
        // others use `--no-store`, so that they are not refused because of the database.
        let files = ["precious.txt", "new.db", "newer.db", "foreign.db", "link", "dangling"];
        let db = dice.below(6) == 0;
        words.push(if db { format!("--db {}", dice.one_of(&files)) } else { "--no-store".into() });
        let verify = if rw.ends_with("rw") { "--zero-buffers" } else { "--verify" };
        let axes: [&[&str]; 6] = [
            &["", "", verify],
            &["--direct=0", "--direct=1", ""],
            &["", "--write-through", "--placement shared --numjobs 2"],
            &engines,
            &["--bs 4k", "--bs 64k", "--bs 512", "--bs 8k"],
            &others,
        ];
        words.extend(axes.iter().map(|axis| dice.one_of(axis).to_owned()));
        words.push("--trials 1 --allow-holes".to_owned());
        words.join(" ")
    }

    /// Returns a command line of `survey` that ends soon: its permission is wrong, or it only
    /// prints the plan.
    fn survey(&self, dice: &mut Dice) -> String {
        let targets = self.targets();
        let target = &targets[dice.below(targets.len())];
        let pages =
            ["precious.html", "precious.txt", "link", "dangling", "plain", "folder", "x.html"];
        let (page, consent) = (dice.one_of(&pages), self.wrong_consent(target, dice));
        let asks = consent.contains("--overwrite") || consent.contains("--destroy");
        let file = !Path::new(target).is_dir() && !self.place.path(target).is_dir();
        let db = dice.one_of(&["--no-store", "--db precious.txt", "--db new.db"]);
        let plan = if asks && file && dice.below(2) == 0 { "" } else { "--plan" };
        format!("survey {target} {consent} --html {page} {db} {plan} --quick --size 1m")
    }
}

/// Returns the names of all subcommands in the help.
fn verbs(place: &Place) -> Vec<String> {
    let help = place.does("--help").stdout;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let listed = commands.lines().filter_map(|line| line.split_whitespace().next());
    listed.map(str::to_owned).chain(["generate".to_owned()]).collect()
}

fn runs_lines(files: &[&str]) -> Vec<String> {
    let verbs = ["list", "tag 1 x", "prune --keep 0 --yes", "vacuum", "merge swept.db"];
    let all =
        verbs.iter().flat_map(|verb| files.iter().map(move |db| format!("runs {verb} --db {db}")));
    all.chain(files.iter().map(move |from| format!("runs merge {from} --db new.db"))).collect()
}

fn compare_lines(treasure: &Treasure, dice: &mut Dice, files: &[&str]) -> Vec<String> {
    let written = files.iter().flat_map(|out| {
        let sides = "compare swept.db swept.db";
        [format!("{sides} --junit {out}"), format!("{sides} --html {out}")]
    });
    let read = files.iter().map(|db| format!("compare 1 2 --db {db}"));
    let named = treasure.targets().into_iter();
    let measured = named.map(|target| {
        let plan = if treasure.place.path(&target).is_dir() { "--plan" } else { "" };
        let sides = format!("--run={target} --run=sim:sata-ssd --budget 300ms");
        format!("compare {sides} {plan} --db {}", dice.one_of(files))
    });
    read.chain(measured).chain(written).collect()
}

/// Returns the command lines to try for a subcommand.
fn lines_for(
    verb: &str,
    (workloads, studies): (usize, usize),
    treasure: &Treasure,
    dice: &mut Dice,
) -> Vec<String> {
    let files = ["precious.txt", "foreign.db", "plain", "link", "dangling", "new.db", "folder"];
    match verb {
        "run" => (0..workloads).map(|_| treasure.workload("run", dice)).collect(),
        "sweep" => (0..workloads / 2).map(|_| treasure.workload("sweep", dice)).collect(),
        "survey" => (0..workloads / 2).map(|_| treasure.survey(dice)).collect(),
        "simulate" => simulate_lines(treasure, &files),
        "report" | "serve" => page_lines(verb, &files),
        "runs" => runs_lines(&files),
        "import" | "export" | "baseline" => exchange_lines(verb, &files),
        "history" => files.iter().map(|db| format!("history --db {db}")).collect(),
        "fleet" => files.iter().map(|page| format!("fleet foreign.db --html {page}")).collect(),
        "compare" => compare_lines(treasure, dice, &files),
        "mount" => {
            // `--until-eof` ends the server at once, because standard input is closed.
            let served = ["truth:fixed=1ms", "sim:nt4-ultrawide"];
            let named = treasure.targets().into_iter();
            let lines = named.flat_map(|t| served.map(|what| format!("mount {what} {t}")));
            lines.map(|line| format!("{line} --size 1m --until-eof")).collect()
        }
        // None of these files contains a key, so the server refuses to start.
        "peer" => files.map(|file| format!("peer --dir folder --key-file {file}")).to_vec(),
        "selftest" => vec!["selftest --device delay --only latency".to_owned()],
        "reproduce" => vec!["reproduce riedel97 --figure 14".to_owned()],
        "memory" => vec!["memory --quick --dir folder".to_owned(), "memory --plan".to_owned()],
        "soak" => vec!["soak --unsoaked -- true".to_owned(), "soak -- false".to_owned()],
        "restore" => vec!["restore --plan".to_owned(), "restore".to_owned()],
        "clean" => vec!["clean --plan".to_owned(), "clean".to_owned(), "clean".to_owned()],
        "target" => {
            let named = treasure.targets().into_iter();
            named.flat_map(|t| [format!("target {t}"), format!("target {t} --json")]).collect()
        }
        "calibrate" => {
            let all = files.iter().flat_map(|out| files.map(|db| (*out, db)));
            let exist = files.iter().filter(|out| **out != "new.db").map(|out| (*out, "swept.db"));
            let fitted = all.chain(exist).map(|(out, db)| format!("--out {out} --db {db}"));
            let measured = treasure.targets().into_iter().map(|t| format!("--measure {t}"));
            fitted.chain(measured).map(|flags| format!("calibrate {flags}")).collect()
        }
        "whatif" => {
            let named = treasure.targets().into_iter();
            named.map(|target| format!("whatif {target} --iodepth-to 2")).collect()
        }
        "plan" => files.map(|file| format!("plan --need reads,8k,1/s --prices {file}")).to_vec(),
        "copy" => copy_lines(treasure, dice),
        "cat" | "checksum" => {
            let named = treasure.targets().into_iter();
            let lines = named.map(|target| format!("{verb} {target}"));
            let checks = files.iter().map(|file| format!("checksum --check {file}"));
            lines.chain(checks.filter(|_| verb == "checksum")).collect()
        }
        "tune" => {
            let named = treasure.targets().into_iter();
            let lines = named.map(|target| {
                let consent = treasure.wrong_consent(&target, dice);
                // `tune` would spend time on a test file in a directory, so only its plan is
                // printed.
                let plan = if treasure.place.path(&target).is_dir() { "--plan" } else { "" };
                format!("tune {target} {consent} {plan}")
            });
            lines.collect()
        }
        "replay" => replay_lines(treasure, dice),
        "fio" => fio_lines(treasure, dice),
        "study" => study_lines(treasure, studies),
        "classic" => classic_lines(treasure, dice, &files),
        "engines" => vec!["engines".to_owned(), "engines --json".to_owned()],
        "explain" => vec!["explain noisy".to_owned(), "explain --json".to_owned()],
        "watch" | "trace" | "characterise" => trace_lines(verb, &files),
        "generate" => ["man", "schema", "bash"].map(|what| format!("generate {what}")).into(),
        "help" => vec!["help".to_owned(), "help run".to_owned()],
        other => panic!("{other} is a new subcommand: add its harmful command lines here"),
    }
}

/// Returns command lines that replay a trace of writes on every target.
fn replay_lines(treasure: &Treasure, dice: &mut Dice) -> Vec<String> {
    let trace = treasure.place.path("writes.csv");
    fs::write(trace, "start_ns,operation,file,offset,bytes\n1,write,f,0,4096\n").unwrap();
    let lines = treasure.targets().into_iter().map(|target| {
        let consent = treasure.wrong_consent(&target, dice);
        let plan = if treasure.place.path(&target).is_dir() { "--plan" } else { "" };
        format!("replay writes.csv {target} {consent} {plan}")
    });
    lines.collect()
}

/// Returns command lines whose output paths are existing files.
fn trace_lines(verb: &str, files: &[&str]) -> Vec<String> {
    let lines = files.iter().flat_map(|file| match verb {
        "watch" => vec![format!("watch --output {file} -- true")],
        "characterise" => vec![format!("characterise {file}")],
        _ => vec![
            format!("trace {file} --export csv --output {file}"),
            format!("trace plain --format csv --html {file}"),
        ],
    });
    lines.collect()
}

/// Returns command lines of `report` or `serve` that use existing files as pages, databases and
/// sockets. New paths are not used as sockets, because `serve` would start and not end.
fn page_lines(verb: &str, files: &[&str]) -> Vec<String> {
    if verb == "serve" {
        let old = files.iter().filter(|file| **file != "new.db");
        let sockets = old.map(|file| format!("serve --db swept.db --unix {file}"));
        return sockets.chain(files.iter().map(|db| format!("serve --db {db} --plan"))).collect();
    }
    let pages = ["precious.html", "precious.txt", "link", "dangling", "folder", "page.html"];
    let all = pages.iter().flat_map(|page| files.iter().map(move |db| (page, db)));
    let one = all.map(|(page, db)| format!("report --html {page} --db {db}"));
    let galleries = ["precious.html", "precious.txt", "link", "dangling", "plain"]
        .map(|folder| format!("report --all --html {folder} --db swept.db"));
    one.chain(galleries).collect()
}

/// Returns command lines that copy to every target, with a wrong permission.
fn copy_lines(treasure: &Treasure, dice: &mut Dice) -> Vec<String> {
    let ways = ["", "--archive", "--resume --verify", "--cached --no-sync", "--limit-rate 1g"];
    let sources = ["halfpower.html.part", "folder", "sparse", treasure.device.path()];
    let line = |target: String| {
        let consent = treasure.wrong_consent(&target, dice);
        let (source, way) = (dice.one_of(&sources), dice.one_of(&ways));
        format!("copy {source} {target} {consent} {way}")
    };
    treasure.targets().into_iter().map(line).collect()
}

/// Returns command lines of `simulate` that use every target as a system and existing files as
/// databases.
fn simulate_lines(treasure: &Treasure, files: &[&str]) -> Vec<String> {
    let system = "simulate --system nt4-ultrawide --size 64k --trials 1";
    let named = treasure.targets().into_iter();
    let written = files.iter().map(|db| format!("{system} --rw write --db {db}"));
    let shown = named.map(|target| format!("simulate {target} --rw write --show {target}"));
    written.chain(shown).collect()
}

/// Returns command lines of `import`, `export` and `baseline` with existing files of the wrong type
/// as inputs, outputs and databases.
fn exchange_lines(verb: &str, files: &[&str]) -> Vec<String> {
    if verb == "baseline" {
        let verbs = ["set x", "list", "remove x", "check x --budget 1s"];
        let all = files.iter().flat_map(|db| verbs.map(|verb| (verb, db)));
        return all.map(|(verb, db)| format!("baseline {verb} --db {db}")).collect();
    }
    if verb == "import" {
        let all = files.iter().flat_map(|file| files.iter().map(move |db| (file, db)));
        return all.map(|(file, db)| format!("import {file} --db {db}")).collect();
    }
    let outputs = ["precious.txt", "link", "dangling", "folder", "plain", "foreign.db"];
    let formats = ["csv", "ndjson", "fio-json", "prometheus"];
    let all = outputs.iter().flat_map(|to| formats.map(|format| (to, format)));
    all.map(|(to, format)| format!("export --format {format} --output {to} --overwrite data"))
        .collect()
}

/// Returns command lines of `fio` whose job writes to a target and sets `overwrite=1`, with a wrong
/// permission.
fn fio_lines(treasure: &Treasure, dice: &mut Dice) -> Vec<String> {
    let named = treasure.targets().into_iter();
    let line = |target: String| {
        let consent = treasure.wrong_consent(&target, dice);
        let rw = dice.one_of(&["write", "randwrite", "randrw", "rw"]);
        let job = format!("--overwrite=1 --allow_mounted_write=1 --rw={rw} --size=64k");
        let flags = format!("{consent} --no-store --allow-holes --trials 1");
        format!("fio --name=x --filename={target} {job} -- {flags}")
    };
    named.map(line).collect()
}

/// Returns one command line of `study` for each target, and one that runs all studies on a file.
/// Each command line for a target runs `count` studies, all of which write.
fn study_lines(treasure: &Treasure, count: usize) -> Vec<String> {
    let quick = "--quick --size 1m --runtime 1ms --trials 1 --html new.html";
    let mut turn = WRITING.iter().cycle();
    let mut next = || turn.by_ref().take(count).copied().collect::<Vec<_>>().join(",");
    let named = treasure.targets().into_iter();
    let lines = named.map(|target| format!("study {} {target} {quick}", next()));
    lines.chain([format!("study all plain {quick}")]).collect()
}

/// Returns command lines of `classic` that write to every target with a wrong permission, or use
/// existing files as outputs and databases.
fn classic_lines(treasure: &Treasure, dice: &mut Dice, files: &[&str]) -> Vec<String> {
    let tests = "classic sqlio -s0.02 -b64 -i8 -f8";
    let named = treasure.targets().into_iter();
    let written = named.map(|target| {
        let consent = treasure.wrong_consent(&target, dice);
        let caching = dice.one_of(&["-BY", "-BH", "-BS", "-BN"]);
        format!("{tests} -kW {caching} {target} {consent} --no-store --allow-holes")
    });
    let mut lines: Vec<String> = written.collect();
    // `new.db` does not exist. `--csv new.db` is left out, because it would leave a file behind.
    let old = files.iter().filter(|file| **file != "new.db");
    lines.extend(old.map(|file| format!("{tests} -BY plain --no-store --csv {file}")));
    lines.extend(files.iter().map(|file| format!("{tests} -BY plain --db {file}")));
    let named = treasure.targets().into_iter();
    lines.extend(named.map(|target| format!("classic cacheflush {target}")));
    let quick = "--quick --size 1m --no-store";
    lines.extend(files.iter().map(|file| format!("classic diskcache {file} {quick}")));
    let others = ["memspeed --quick --size 64k --dir folder", "cmdgen plain", "cacheflush"];
    lines.extend(others.map(|line| format!("classic {line}")));
    lines
}

#[test]
fn without_permission_nothing_that_exists_is_changed_by_any_verb() {
    nothing_is_changed(LINES, 2);
}

#[test]
#[ignore = "takes one to two minutes"]
fn without_permission_nothing_that_exists_is_changed_by_thousands_of_lines() {
    nothing_is_changed(10 * LINES, WRITING.len());
}

/// Runs the command lines of all subcommands, and checks that no existing file changes. `workloads`
/// is the number of command lines of `run`. The subcommands `sweep` and `survey` each have half as
/// many command lines. `studies` is the number of studies on each target.
fn nothing_is_changed(workloads: usize, studies: usize) {
    let treasure = or_skip!(Treasure::new());
    let mut dice = Dice(0x5afe);
    for verb in verbs(&treasure.place) {
        for line in lines_for(&verb, (workloads, studies), &treasure, &mut dice) {
            let ended = treasure.place.halfpower(&line);
            let code = ended.status.code();
            assert!(code.is_some_and(|code| code <= 5), "unexpected exit code: {ended}");
            treasure.looks_as_before(&line);
        }
        treasure.is_as_before(&verb);
    }
    let made = |name: &String| !treasure.shapes.contains_key(&treasure.place.path(name));
    let mut new: Vec<String> = treasure.place.listing().into_iter().filter(made).collect();
    new.retain(|name| name != "folder");
    // Only these files may be new: copies under unused names, a database, a page, a copy of the
    // device, and `writes.csv`.
    let device = Path::new(treasure.device.path()).file_name().unwrap().to_str().unwrap();
    let ours = ["halfpower.db", "new.db", "new.html", "nothing", "writes.csv", device];
    assert!(new.iter().all(|name| ours.contains(&name.as_str())), "left behind: {new:?}");
}

#[test]
fn a_survey_of_what_exists_only_reads_it() {
    let treasure = or_skip!(Treasure::new());
    let targets =
        ["plain".to_owned(), treasure.parts[0].clone(), treasure.volume.device.path().into()];
    let start = |target: &String| {
        treasure.place.start(&format!("survey {target} --budget 5 --html new.html"))
    };
    let running: Vec<Running> = targets.iter().map(start).collect();
    for survey in running {
        let ended = survey.ended();
        assert!(matches!(ended.status.code(), Some(0 | 5)), "{ended}");
    }
    treasure.is_as_before("survey");
    // A run is now stored, so `report` would replace these files if it did not refuse.
    for page in ["precious.html", "precious.txt", "link", "dangling", "folder", "plain"] {
        let ended = treasure.place.halfpower(&format!("report --html {page}"));
        ended.with_code(3).says(page, "specify another file with --html");
    }
    let plan = treasure.place.does("report --html page.html --plan");
    assert!(plan.stdout.contains("write the page page.html"), "{plan}");
    assert!(!treasure.place.path("page.html").exists());
    treasure.place.does("report --html page.html");
    treasure.is_as_before("report");
}

#[test]
fn with_permission_the_thing_that_was_named_is_written_and_nothing_else() {
    let mut treasure = or_skip!(Treasure::new());
    let blank = or_skip!(LoopDevice::blank(4 * MIB));
    let path = blank.path().to_owned();
    let write = "--rw write --bs 64k --size 256k --trials 1 --no-store --json";
    for line in [
        format!("run {path} {write} --destroy-data-on={path}"),
        format!("run plain {write} --overwrite=plain"),
        format!("run folder {write}"),
    ] {
        let document = treasure.place.does(&line).json();
        assert_eq!(whole(&document["trials"][0]["bytes"]), 256 * KIB, "{line}");
    }
    assert!(blank.content()[..256 << 10] != [0; 256 << 10], "the blank device was not written");
    let plain = treasure.place.path("plain");
    treasure.shapes.remove(&plain).unwrap();
    let before = treasure.contents.remove(&plain).unwrap();
    assert_ne!(checksum(&fs::read(&plain).unwrap()), before, "the permitted file was not written");
    treasure.is_as_before("run with permission");
}
