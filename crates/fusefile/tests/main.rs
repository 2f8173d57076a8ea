//! Tests what programs see of the served file: written data are read back, latencies follow the
//! model, and faults are visible.
//!
//! If FUSE is missing or mounting is not permitted, each test prints a message and is skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;

use fusefile::mounted::{Mounted, mount};
use fusefile::{KnownTruth, Spec};
use ioengine::fault::{Fault, FaultPlan, FaultRule};
use ioengine::truth::Truth;
use ioengine::{Clock, Monotonic};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Served {
    mounted: Option<Mounted>,
    folder: TempDir,
}

fn serve(test: &str, truth: Truth, faults: FaultPlan) -> Option<Served> {
    let folder = tempfile::tempdir().unwrap();
    let timing = Box::new(KnownTruth::new(truth));
    let spec =
        Spec { name: "device".to_owned(), size_bytes: 8 * MIB, block_bytes: 512, timing, faults };
    match mount(folder.path(), spec) {
        Ok(mounted) => Some(Served { mounted: Some(mounted), folder }),
        Err(error) => {
            let line = format!("skipped: {test}: cannot mount FUSE: {error}");
            eprintln!("{line}");
            if let Some(log) = std::env::var_os("HALFPOWER_SKIP_LOG") {
                let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
                writeln!(log, "{line}").unwrap();
            }
            None
        }
    }
}

impl Served {
    fn open(&self) -> std::fs::File {
        let path = self.mounted.as_ref().unwrap().path();
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    fn ends_unmounted(mut self) {
        self.mounted.take().unwrap().unmount().unwrap();
        assert_eq!(std::fs::read_dir(self.folder.path()).unwrap().count(), 0);
    }
}

fn one(fault: Fault, first: u64) -> FaultPlan {
    FaultPlan { rules: vec![FaultRule { fault, only: None, first, count: 1 }] }
}

#[test]
fn what_is_written_is_read_again_until_the_file_is_unmounted() {
    let name = "what_is_written_is_read_again_until_the_file_is_unmounted";
    let Some(served) = serve(name, Truth::default(), FaultPlan::default()) else { return };
    let file = served.open();
    let data: Vec<u8> = (0..3 * MIB).map(|i| (i % 251) as u8).collect();
    file.write_all_at(&data, MIB).unwrap();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, MIB).unwrap();
    assert!(read == data);
    assert_eq!(file.metadata().unwrap().len(), 8 * MIB);
    assert!(file.write_all_at(&[1], 8 * MIB).is_err(), "a device does not grow");
    assert!(file.set_len(MIB).is_err(), "a device does not shrink");
    drop(file);
    served.ends_unmounted();
}

#[test]
fn a_request_takes_no_less_than_the_model_says() {
    let name = "a_request_takes_no_less_than_the_model_says";
    let truth = Truth { fixed_ns: 5_000_000, ..Truth::default() };
    let Some(served) = serve(name, truth, FaultPlan::default()) else { return };
    let (file, clock) = (served.open(), Monotonic::new());
    let start = clock.now_ns();
    for number in 0..4 {
        file.read_exact_at(&mut [0; 4096], number * 4096).unwrap();
    }
    assert!(clock.now_ns() - start >= 4 * 5_000_000);
    drop(file);
    served.ends_unmounted();
}

#[test]
fn faults_reach_the_program_as_a_device_would_show_them() {
    let name = "faults_reach_the_program_as_a_device_would_show_them";
    let Some(served) = serve(name, Truth::default(), one(Fault::Errno(5), 1)) else { return };
    let file = served.open();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    let error = file.read_exact_at(&mut [0; 4096], 4096).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    drop(file);
    served.ends_unmounted();
    let Some(served) = serve(name, Truth::default(), one(Fault::Lose, 0)) else { return };
    let file = served.open();
    file.write_all_at(&[9; 4096], 0).unwrap();
    let mut read = [1; 4096];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, [0; 4096], "the write was lost without an error");
}

#[test]
fn a_folder_with_content_is_not_mounted_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("precious"), "x").unwrap();
    let timing = Box::new(KnownTruth::new(Truth::default()));
    let faults = FaultPlan::default();
    let spec =
        Spec { name: "device".to_owned(), size_bytes: MIB, block_bytes: 512, timing, faults };
    assert!(mount(folder.path(), spec).is_err());
    assert!(folder.path().join("precious").exists());
}
