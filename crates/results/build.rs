//! Lists the files of `src/migration` in the order of their numbers, so that adding a file is
//! enough to add a migration.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src/migration");
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the folder of the crate");
    let out = env::var_os("OUT_DIR").expect("cargo names the folder for what is generated");
    let folder = Path::new(&root).join("src/migration");
    let entries = fs::read_dir(&folder).expect("the folder of migrations can be read");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let line = |file: &PathBuf| format!("    include_str!({:?}),\n", file.display().to_string());
    let lines: String = files.iter().map(line).collect();
    let list = Path::new(&out).join("migrations.rs");
    fs::write(list, format!("&[\n{lines}]\n")).expect("the list can be written");
}
