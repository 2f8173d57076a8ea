//! Tests that readers and writers can replace `BufReader` and `BufWriter`. Readers and writers must
//! use and update the position of an open file, append, return the file, and let other programs see
//! only written bytes.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};

use seqio::{Cache, Options, Reader, Writer};

use crate::bench::{content, folder};

const MIB: usize = 1 << 20;

fn ways() -> Vec<Options> {
    vec![
        Options::new(),
        Options::new().cache(Cache::Direct).request_bytes(65536).depth(4),
        Options::new().cache(Cache::Buffered),
    ]
}

#[test]
fn readers_and_writers_can_be_shared_between_threads() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Reader>();
    is_send_and_sync::<Writer>();
    is_send_and_sync::<Options>();
}

#[test]
fn a_file_that_is_appended_to_keeps_what_it_holds() {
    for options in ways() {
        for bytes in [10, 3 * MIB] {
            let folder = folder();
            let path = folder.path().join("log");
            let (before, more) = (content(5 * MIB, 1), content(bytes, 2));
            std::fs::write(&path, &before).unwrap();
            let file = OpenOptions::new().append(true).open(&path).unwrap();
            let mut writer = options.writer(file).unwrap();
            assert_eq!(writer.position(), before.len() as u64);
            writer.write_all(&more).unwrap();
            // Another program appends to the file while the writer is open.
            writer.flush().unwrap();
            OpenOptions::new().append(true).open(&path).unwrap().write_all(b"other").unwrap();
            writer.write_all(b"end").unwrap();
            writer.finish().unwrap();
            let wanted = [before.as_slice(), &more, b"other", b"end"].concat();
            assert!(std::fs::read(&path).unwrap() == wanted, "{bytes} bytes");
        }
    }
    let folder = folder();
    let path = folder.path().join("new");
    for text in ["one", "two"] {
        let mut writer = Options::new().append(&path).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "onetwo");
}

#[test]
fn a_reader_starts_at_the_position_of_the_file_and_updates_it() {
    for options in ways() {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = content(4 * MIB, 1);
        std::fs::write(&path, &wanted).unwrap();
        let mut file = File::open(&path).unwrap();
        let mut head = vec![0; 100_003];
        file.read_exact(&mut head).unwrap();
        let mut reader = options.reader(file.try_clone().unwrap()).unwrap();
        let mut part = vec![0; 2 * MIB];
        reader.read_exact(&mut part).unwrap();
        assert!(part == wanted[100_003..][..2 * MIB]);
        drop(reader);
        assert_eq!(file.stream_position().unwrap(), 100_003 + 2 * MIB as u64);
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        assert!(rest == wanted[100_003 + 2 * MIB..]);
    }
}

#[test]
fn a_writer_starts_at_the_position_of_the_file_and_updates_it() {
    for options in ways() {
        for bytes in [10, 3 * MIB + 5] {
            let folder = folder();
            let path = folder.path().join("file");
            let mut file = File::create(&path).unwrap();
            file.write_all(b"head").unwrap();
            let body = content(bytes, 1);
            let mut writer = options.writer(file.try_clone().unwrap()).unwrap();
            writer.write_all(&body).unwrap();
            writer.finish().unwrap();
            file.write_all(b"tail").unwrap();
            let wanted = [b"head", body.as_slice(), b"tail"].concat();
            assert!(std::fs::read(&path).unwrap() == wanted);
        }
    }
}

#[test]
fn nobody_ever_sees_more_than_was_written() {
    for options in ways() {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = content(13 * MIB, 3);
        let mut writer = options.create(&path).unwrap();
        for (number, part) in wanted.chunks(300_007).enumerate() {
            writer.write_all(part).unwrap();
            if number % 5 == 4 {
                writer.flush().unwrap();
                let written = writer.position() as usize;
                let seen = std::fs::read(&path).unwrap();
                assert!(seen == wanted[..written], "{} of {written} bytes", seen.len());
            }
            let seen = std::fs::read(&path).unwrap();
            assert!(wanted.starts_with(&seen), "{} bytes: {:?}", seen.len(), writer.plan());
        }
        // Simulates a process that ends without dropping the writer.
        std::mem::forget(writer);
        let seen = std::fs::read(&path).unwrap();
        assert!(wanted.starts_with(&seen), "{} bytes", seen.len());
    }
}

#[test]
fn a_finished_file_keeps_no_blocks_beyond_its_end() {
    use std::os::unix::fs::MetadataExt;
    for options in ways() {
        for size in [None, Some(64 << 20)] {
            let folder = folder();
            let path = folder.path().join("file");
            let options = size.map_or(options.clone(), |size| options.clone().size(size));
            let mut writer = options.create(&path).unwrap();
            writer.write_all(&content(5 * MIB + 1, 3)).unwrap();
            assert_eq!(writer.finish().unwrap(), 5 * MIB as u64 + 1);
            let blocks = std::fs::metadata(&path).unwrap().blocks() * 512;
            assert!(blocks <= 6 * MIB as u64, "the file occupies {blocks} bytes: {options:?}");
        }
    }
}

#[test]
fn the_file_can_be_borrowed_and_returned() {
    for options in ways() {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = content(3 * MIB, 1);
        let mut writer = options.create(&path).unwrap();
        writer.write_all(&wanted).unwrap();
        assert_eq!(writer.as_fd().as_raw_fd(), writer.get_ref().as_raw_fd());
        let file = writer.into_inner().unwrap();
        assert_eq!(file.metadata().unwrap().len(), wanted.len() as u64);
        let mut reader = options.open(&path).unwrap();
        let mut line = Vec::new();
        reader.read_until(wanted[12345], &mut line).unwrap();
        assert_eq!(reader.as_fd().as_raw_fd(), reader.get_ref().as_raw_fd());
        let read = reader.position();
        let mut file = reader.into_inner().unwrap();
        assert_eq!(file.stream_position().unwrap(), read, "the file has the reader's position");
    }
}

#[test]
fn a_seek_reads_little_and_reading_on_reads_ahead_again() {
    let folder = folder();
    let path = folder.path().join("file");
    let wanted = content(24 * MIB, 1);
    std::fs::write(&path, &wanted).unwrap();
    let file = File::open(&path).unwrap();
    rustix::fs::fsync(&file).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut reader = Options::new().cache(Cache::Direct).open(&path).unwrap();
    let mut bytes = [0; 4096];
    for number in 0..200_u64 {
        let offset = number * 7919 * 4099 % (23 * MIB as u64);
        reader.seek(SeekFrom::Start(offset)).unwrap();
        reader.read_exact(&mut bytes).unwrap();
        assert!(bytes[..] == wanted[offset as usize..][..4096]);
    }
    reader.seek(SeekFrom::Start(MIB as u64)).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest == wanted[MIB..]);
    assert!(reader.plan().direct, "{:?}", reader.plan());
}
