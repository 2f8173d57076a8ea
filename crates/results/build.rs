//! Generates the list of migrations from the files in `src/migration`, sorted by name. A new
//! migration needs only a new file.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src/migration");
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let folder = Path::new(&root).join("src/migration");
    let entries = fs::read_dir(&folder).expect("src/migration can be read");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let line = |file: &PathBuf| format!("    include_str!({:?}),\n", file.display().to_string());
    let lines: String = files.iter().map(line).collect();
    let list = Path::new(&out).join("migrations.rs");
    fs::write(list, format!("&[\n{lines}]\n")).expect("migrations.rs can be written");
}
