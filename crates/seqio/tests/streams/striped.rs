//! Tests of a stream that is striped over several files: a reader returns the written bytes, and
//! the first chunk is in the first file.

use std::path::PathBuf;

use proptest::prelude::*;
use seqio::Options;
use std::io::Write;

use crate::bench::{assert_same, blocks, content, folder, way};

fn names(folder: &tempfile::TempDir, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| folder.path().join(format!("member-{number}"))).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_stream_over_several_files_comes_back_as_it_was_written(
        members in 1..5_usize,
        chunk in prop::sample::select(vec![1000_u64, 4096, 65536, 100_000, 3 << 20]),
        bytes in 0..3_000_000_usize,
        (writing, reading) in (way(), way()),
        seed in any::<u64>(),
    ) {
        let folder = folder();
        let paths = names(&folder, members);
        let wanted = content(bytes, seed);
        let mut writer = writing.create_striped(&paths, chunk).unwrap();
        writer.write_all(&wanted).unwrap();
        prop_assert_eq!(writer.finish().unwrap(), bytes as u64);
        let mut reader = reading.open_striped(&paths, chunk).unwrap();
        assert_same(&blocks(&mut reader).unwrap(), &wanted)?;
        let first = std::fs::read(&paths[0]).unwrap();
        let chunk = (chunk as usize).min(bytes);
        assert_same(&first[..chunk], &wanted[..chunk])?;
    }
}

#[test]
fn files_that_are_no_stripe_are_refused_with_the_remedy() {
    let folder = folder();
    let paths = names(&folder, 2);
    std::fs::write(&paths[0], [0; 1000]).unwrap();
    std::fs::write(&paths[1], [0; 9000]).unwrap();
    let error = Options::new().open_striped(&paths, 4096).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("; specify all files"), "{error}");
    assert!(Options::new().open_striped(&paths[..0], 4096).is_err());
}
