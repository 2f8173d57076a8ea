//! Tests of copies: every method copies the same bytes and holes, an error contains the side
//! (source or destination) and the offset, and a watcher sees all data in order.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ioengine::Op;
use ioengine::fault::{Fault, FaultPlan, FaultRule};
use proptest::prelude::*;
use seqio::copy::{Copied, CopyError, NoWatch, Side, Watch};
use seqio::{Cache, Options};

use crate::bench::{assert_same, content, folder, harmless, made, way};

/// Copies the first path to the second, starting at the offset `begin`.
fn copied(
    options: &Options,
    [from, to]: &[PathBuf; 2],
    begin: u64,
    watch: &mut dyn Watch,
) -> Result<Copied, CopyError> {
    let source = File::open(from).unwrap();
    let target = File::options().write(true).create(true).truncate(false).open(to).unwrap();
    options.copy(&source, &target, begin, watch)
}

fn names(folder: &Path) -> [PathBuf; 2] {
    ["from", "to"].map(|name| folder.join(name))
}

/// A watcher that collects the data of the copy.
#[derive(Default)]
struct Seen {
    all: Vec<u8>,
    written: u64,
}

impl Watch for Seen {
    fn wants_data(&self) -> bool {
        true
    }

    fn data(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert_eq!(offset, self.all.len() as u64, "data and holes are in order");
        self.all.extend_from_slice(data);
        Ok(())
    }

    fn hole(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        assert_eq!(offset, self.all.len() as u64, "data and holes are in order");
        self.all.resize(self.all.len() + bytes as usize, 0);
        Ok(())
    }

    fn written(&mut self, up_to: u64) -> io::Result<()> {
        assert!(
            (self.written..=self.all.len() as u64).contains(&up_to),
            "the watcher must see data before they are written"
        );
        self.written = up_to;
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn every_method_copies_the_same_bytes(
        made in made(),
        options in way(),
        faults in harmless(),
        holes in any::<bool>(),
        before in prop::option::of(0..3_000_000_usize),
    ) {
        let folder = folder();
        let paths = names(folder.path());
        let wanted = made.write(&File::create(&paths[0]).unwrap());
        if let Some(bytes) = before {
            std::fs::write(&paths[1], content(bytes, 99)).unwrap();
        }
        let mut seen = Seen::default();
        let options = options.faults(faults).keep_holes(holes);
        let copied = copied(&options, &paths, 0, &mut seen).unwrap();
        assert_same(&std::fs::read(&paths[1]).unwrap(), &wanted)?;
        assert_same(&seen.all, &wanted)?;
        prop_assert_eq!((copied.bytes, seen.written), (wanted.len() as u64, wanted.len() as u64));
    }

    #[test]
    fn a_copy_can_start_at_an_offset(
        made in made(),
        options in way(),
        share in 0.0..1.0_f64,
    ) {
        let folder = folder();
        let paths = names(folder.path());
        let wanted = made.write(&File::create(&paths[0]).unwrap());
        let begin = (wanted.len() as f64 * share) as usize;
        let mut partial = wanted[..begin].to_vec();
        partial.extend_from_slice(&content(5000, 7));
        std::fs::write(&paths[1], partial).unwrap();
        copied(&options, &paths, begin as u64, &mut NoWatch).unwrap();
        assert_same(&std::fs::read(&paths[1]).unwrap(), &wanted)?;
    }
}

#[test]
fn holes_stay_holes_and_are_not_moved() {
    for cache in [Cache::Direct, Cache::Buffered] {
        let folder = folder();
        let paths = names(folder.path());
        let source = File::create(&paths[0]).unwrap();
        source.set_len(64 << 20).unwrap();
        source.write_all_at(&content(1 << 20, 1), 32 << 20).unwrap();
        let copied = copied(&Options::new().cache(cache), &paths, 0, &mut NoWatch).unwrap();
        assert!(copied.moved_bytes <= 4 << 20, "{copied:?}");
        assert!(std::fs::read(&paths[0]).unwrap() == std::fs::read(&paths[1]).unwrap());
        assert!(std::fs::metadata(&paths[1]).unwrap().blocks() * 512 <= 4 << 20);
    }
}

#[test]
fn an_error_ends_the_copy_and_tells_which_side_failed_and_where() {
    let folder = folder();
    let paths = names(folder.path());
    std::fs::write(&paths[0], content(4 << 20, 1)).unwrap();
    for (op, errno, side) in [(Op::Read, 5, Side::Source), (Op::Write, 28, Side::Destination)] {
        let rule = FaultRule { fault: Fault::Errno(errno), only: Some(op), first: 5, count: 1 };
        let faults = FaultPlan { rules: vec![rule] };
        let options = Options::new().cache(Cache::Direct).request_bytes(65536).faults(faults);
        let error = copied(&options, &paths, 0, &mut NoWatch).unwrap_err();
        assert_eq!((error.side, error.offset), (side, Some(5 * 65536)));
        assert_eq!(io::Error::from(error).raw_os_error(), Some(errno));
    }
}

#[test]
fn a_file_of_nothing_but_holes_takes_no_space() {
    for cache in [Cache::Auto, Cache::Direct, Cache::Buffered] {
        for unseen in [false, true] {
            let folder = folder();
            let paths = names(folder.path());
            File::create(&paths[0]).unwrap().set_len(1 << 40).unwrap();
            let options = Options::new().cache(cache).unseen(unseen);
            let copied = copied(&options, &paths, 0, &mut NoWatch).unwrap();
            let there = std::fs::metadata(&paths[1]).unwrap();
            assert_eq!((copied.bytes, copied.moved_bytes, there.len()), (1 << 40, 0, 1 << 40));
            assert!(there.blocks() * 512 <= 1 << 20, "{} blocks", there.blocks());
        }
    }
}

#[test]
fn a_destination_that_others_see_is_never_larger_than_what_is_written() {
    /// Checks at every call that the destination is a prefix of the source.
    struct Looks {
        path: PathBuf,
        wanted: Vec<u8>,
    }
    impl Looks {
        fn look(&self) {
            let seen = std::fs::read(&self.path).unwrap();
            assert!(self.wanted.starts_with(&seen), "{} bytes are visible", seen.len());
        }
    }
    impl Watch for Looks {
        fn moved(&mut self, _: u64, _: u64) -> io::Result<()> {
            self.look();
            Ok(())
        }
        fn written(&mut self, _: u64) -> io::Result<()> {
            self.look();
            Ok(())
        }
    }
    for size in [2_000_000, 9 << 20, (9 << 20) + 7] {
        let folder = folder();
        let paths = names(folder.path());
        let wanted = content(size, 5);
        std::fs::write(&paths[0], &wanted).unwrap();
        for options in [Options::new(), Options::new().request_bytes(65536).depth(8)] {
            let mut looks = Looks { path: paths[1].clone(), wanted: wanted.clone() };
            copied(&options.cache(Cache::Direct), &paths, 0, &mut looks).unwrap();
            let blocks = std::fs::metadata(&paths[1]).unwrap().blocks() * 512;
            assert!(blocks <= size as u64 + (64 << 10), "{blocks} bytes occupied for {size}");
        }
    }
}

#[test]
fn a_watcher_may_end_a_copy() {
    struct Enough;
    impl Watch for Enough {
        fn written(&mut self, up_to: u64) -> io::Result<()> {
            if up_to > 1 << 20 { Err(io::Error::other("enough")) } else { Ok(()) }
        }
    }
    let folder = folder();
    let paths = names(folder.path());
    std::fs::write(&paths[0], content(8 << 20, 1)).unwrap();
    let options = Options::new().cache(Cache::Direct).request_bytes(65536);
    let error = copied(&options, &paths, 0, &mut Enough).unwrap_err();
    assert_eq!(error.to_string(), "enough");
}

#[test]
fn a_copy_by_path_equals_that_of_the_standard_library() {
    let folder = folder();
    let [from, to] = names(folder.path());
    std::fs::write(&from, content(3_000_001, 1)).unwrap();
    let mut permissions = std::fs::metadata(&from).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&from, permissions.clone()).unwrap();
    assert_eq!(seqio::copy(&from, &to).unwrap(), 3_000_001);
    assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
    assert_eq!(std::fs::metadata(&to).unwrap().permissions(), permissions);
}
