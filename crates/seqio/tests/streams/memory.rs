//! Tests that a process with hundreds of open streams uses a limited amount of memory.

use std::io::{Read, Write};

use seqio::{Cache, Options, Reader, Writer};

use crate::bench::{content, folder};

/// Returns the resident memory of this process (bytes).
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn hundreds_of_readers_and_writers_at_once_take_no_more_than_the_limit() {
    const STREAMS: usize = 300;
    let folder = folder();
    let path = folder.path().join("file");
    let wanted = content(6 << 20, 1);
    std::fs::write(&path, &wanted).unwrap();
    let before = resident_bytes();
    let direct = Options::new().cache(Cache::Direct);
    let mut readers: Vec<Reader> = (0..STREAMS).map(|_| direct.open(&path).unwrap()).collect();
    let mut first = [0; 100];
    for reader in &mut readers {
        reader.read_exact(&mut first).unwrap();
        assert!(first[..] == wanted[..100]);
    }
    let mut writers: Vec<Writer> = Vec::new();
    for number in 0..STREAMS / 10 {
        let mut writer = direct.create(folder.path().join(number.to_string())).unwrap();
        writer.write_all(&wanted[..2 << 20]).unwrap();
        writers.push(writer);
    }
    // The requests of all streams together may use 256 MiB. Streams beyond this limit use small
    // buffers. The assertion allows for more, because other tests run in this process at the same
    // time.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 700 << 20, "{} MiB for {STREAMS} readers", grown >> 20);
    for reader in &mut readers {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest == wanted[100..], "{:?}", reader.plan());
    }
    for writer in writers {
        assert_eq!(writer.finish().unwrap(), 2 << 20);
    }
}
