//! Property tests with random files, options, operations and harmless faults. Streams must read and
//! write the same bytes as the standard library.

use std::fs::File;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};

use proptest::prelude::*;
use seqio::{Options, Reader};

use crate::bench::{assert_same, blocks, content, folder, harmless, made, parts, way};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_reader_returns_the_bytes_of_the_file(
        made in made(),
        options in way(),
        faults in harmless(),
        holes in any::<bool>(),
        part in 1..300_000_usize,
    ) {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = made.write(&File::create(&path).unwrap());
        let options = options.faults(faults).keep_holes(holes);
        let open = || options.open(&path).unwrap();
        assert_same(&blocks(&mut open()).unwrap(), &wanted)?;
        assert_same(&parts(&mut open(), part).unwrap(), &wanted)?;
        let mut all = Vec::new();
        open().read_to_end(&mut all).unwrap();
        assert_same(&all, &wanted)?;
    }

    #[test]
    fn a_reader_seeks_like_a_file(
        made in made(),
        options in way(),
        steps in prop::collection::vec((0..4_u8, 0..600_000_u64, 1..200_000_usize), 1..12),
    ) {
        let folder = folder();
        let path = folder.path().join("file");
        let wanted = made.write(&File::create(&path).unwrap());
        let (mut reader, mut file) = (options.open(&path).unwrap(), File::open(&path).unwrap());
        for (step, to, bytes) in steps {
            match step {
                0 => {
                    let place = SeekFrom::Start(to);
                    prop_assert_eq!(reader.seek(place).unwrap(), file.seek(place).unwrap());
                }
                1 => {
                    let back = SeekFrom::Current(-((to / 2) as i64));
                    prop_assert_eq!(reader.seek(back).is_err(), file.seek(back).is_err());
                }
                2 => {
                    let place = SeekFrom::End(-((to as usize).min(wanted.len()) as i64));
                    prop_assert_eq!(reader.seek(place).unwrap(), file.seek(place).unwrap());
                }
                _ => {
                    let ready = reader.fill_buf().unwrap().len().min(7);
                    reader.consume(ready);
                    file.seek(SeekFrom::Current(ready as i64)).unwrap();
                }
            }
            let (mut found, mut there) = (vec![0; bytes], vec![0; bytes]);
            let read = read_all(&mut reader, &mut found);
            prop_assert_eq!(read, read_all(&mut file, &mut there));
            assert_same(&found, &there)?;
            prop_assert_eq!(reader.stream_position().unwrap(), file.stream_position().unwrap());
        }
    }

    #[test]
    fn every_writer_writes_the_given_bytes(
        options in way(),
        faults in harmless(),
        unseen in any::<bool>(),
        foretold in prop::option::of(0..3_000_000_u64),
        steps in prop::collection::vec((0..8_u8, 0..700_000_usize), 0..9),
        seed in any::<u64>(),
    ) {
        let folder = folder();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut options = options.faults(faults).unseen(unseen).durable(seed % 2 == 0);
        if let Some(bytes) = foretold {
            options = options.size(bytes);
        }
        let mut writer = options.create(&ours).unwrap();
        let mut file = File::create(&theirs).unwrap();
        for (number, (step, bytes)) in steps.into_iter().enumerate() {
            match step {
                0 => {
                    writer.flush().unwrap();
                    let seen = std::fs::read(&ours).unwrap();
                    let wanted = std::fs::read(&theirs).unwrap();
                    if unseen {
                        assert_same(&seen[..wanted.len()], &wanted)?;
                    } else {
                        assert_same(&seen, &wanted)?;
                    }
                }
                1 => writer.sync_data().unwrap(),
                2 => {
                    let place = SeekFrom::Start(bytes as u64);
                    prop_assert_eq!(writer.seek(place).unwrap(), file.seek(place).unwrap());
                }
                3 => {
                    let end = SeekFrom::End(0);
                    prop_assert_eq!(writer.seek(end).unwrap(), file.seek(end).unwrap());
                }
                _ => {
                    let data = content(bytes, seed.wrapping_add(number as u64));
                    writer.write_all(&data).unwrap();
                    file.write_all(&data).unwrap();
                }
            }
            prop_assert_eq!(writer.position(), file.stream_position().unwrap());
            let size = |path| std::fs::metadata(path).unwrap().len();
            let (ours, theirs) = (size(&ours), size(&theirs));
            prop_assert!(unseen || ours <= theirs, "size {ours}, but {theirs} bytes written");
        }
        let wanted = std::fs::read(&theirs).unwrap();
        prop_assert_eq!(writer.finish().unwrap(), wanted.len() as u64);
        assert_same(&std::fs::read(&ours).unwrap(), &wanted)?;
    }
}

/// Reads until `into` is full or the file ends. Returns the number of bytes.
fn read_all(from: &mut impl Read, into: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]).unwrap() {
            0 => break,
            read => filled += read,
        }
    }
    filled
}

#[test]
fn a_pipe_is_read_and_written_to_its_end() {
    let (from, to) = std::io::pipe().unwrap();
    let wanted = content(3_000_000, 5);
    let data = wanted.clone();
    let writing = std::thread::spawn(move || {
        let file = File::from(std::os::fd::OwnedFd::from(to));
        let mut writer = Options::new().writer(file).unwrap();
        writer.write_all(&data).unwrap();
        writer.finish().unwrap()
    });
    let file = File::from(std::os::fd::OwnedFd::from(from));
    let mut reader: Reader = Options::new().reader(file).unwrap();
    assert!(reader.seek(SeekFrom::Start(9)).is_err(), "a pipe cannot seek");
    assert!(blocks(&mut reader).unwrap() == wanted);
    assert_eq!(writing.join().unwrap(), 3_000_000);
}
