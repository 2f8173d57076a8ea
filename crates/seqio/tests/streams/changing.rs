//! Tests of reading files that grow or are truncated while they are read, and of files that contain
//! fewer bytes than their reported size.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use seqio::{Cache, Options};

use crate::bench::{content, folder};

const MIB: usize = 1 << 20;

fn ways() -> Vec<Options> {
    vec![
        Options::new().cache(Cache::Direct).request_bytes(65536).depth(4),
        Options::new().cache(Cache::Buffered).request_bytes(65536).depth(4),
        Options::new().cache(Cache::Buffered),
    ]
}

#[test]
fn what_is_appended_while_a_file_is_read_is_read_too() {
    for options in ways() {
        let folder = folder();
        let path = folder.path().join("file");
        std::fs::write(&path, content(MIB + 100, 1)).unwrap();
        let mut reader = options.open(&path).unwrap();
        let mut all = vec![0; 300_000];
        reader.read_exact(&mut all).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&content(MIB, 2)).unwrap();
        reader.read_to_end(&mut all).unwrap();
        assert!(all == std::fs::read(&path).unwrap(), "{:?}", reader.plan());
        // At the end of the file, the reader returns no block until the file grows.
        assert!(reader.next_block().unwrap().is_none());
        file.write_all(b"more").unwrap();
        assert_eq!(&*reader.next_block().unwrap().unwrap(), b"more");
    }
}

#[test]
fn a_file_that_is_truncated_while_it_is_read_ends_there() {
    for options in ways() {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = content(4 * MIB, 1);
        std::fs::write(&path, &wanted).unwrap();
        let mut reader = options.open(&path).unwrap();
        let mut all = vec![0; 70_000];
        reader.read_exact(&mut all).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(2 * MIB as u64 + 77).unwrap();
        reader.read_to_end(&mut all).unwrap();
        // When the file was truncated, less than 2 MiB had been read ahead in every mode, so no
        // buffer contained data from beyond the new end. The reader must return exactly the data up
        // to the new end.
        assert_eq!(all.len(), 2 * MIB + 77, "{:?}", reader.plan());
        assert!(all[..] == wanted[..all.len()]);
        assert!(reader.next_block().unwrap().is_none());
    }
}

#[test]
fn a_file_shorter_than_its_reported_size_ends_early() {
    // Files in sysfs report a size of one page, although their contents are shorter.
    let Ok(text) = std::fs::read("/sys/kernel/mm/transparent_hugepage/enabled") else { return };
    let options = Options::new().cache(Cache::Buffered).depth(2);
    let mut reader = options.open("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    assert_eq!(found, text);
}

#[test]
fn a_reader_drops_only_pages_that_it_brought_into_the_cache() {
    let folder = folder();
    let path = folder.path().join("file");
    let wanted = content(MIB / 2 + 11, 3);
    let mut file = File::create(&path).unwrap();
    file.write_all(&wanted).unwrap();
    file.sync_all().unwrap();
    let file = File::open(&path).unwrap();
    let resident = || ioengine::open_file::resident_bytes(&file).unwrap();
    let read = |options: Options| {
        let mut all = Vec::new();
        options.open(&path).unwrap().read_to_end(&mut all).unwrap();
        assert!(all == wanted);
        resident()
    };
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if resident() > 0 {
        return; // This file system keeps all files in memory.
    }
    assert_eq!(read(Options::new().leave_cache(true)), 0, "an uncached file stays uncached");
    let hot = read(Options::new());
    assert!(hot >= wanted.len() as u64, "by default, the file stays cached: {hot}");
    assert_eq!(read(Options::new().leave_cache(true)), hot, "a cached file stays cached");
}
