//! Tests that a program gets an I/O error at the right offset and with the right error number.

use std::io::{ErrorKind, Read, Write};

use ioengine::Op;
use ioengine::fault::{Fault, FaultPlan, FaultRule};
use seqio::{Cache, Options};

use crate::bench::{content, folder};

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

fn plan(fault: Fault, only: Op, first: u64, count: u64) -> FaultPlan {
    FaultPlan { rules: vec![FaultRule { fault, only: Some(only), first, count }] }
}

fn deep() -> Options {
    Options::new().cache(Cache::Direct).request_bytes(65536).depth(4)
}

#[test]
fn a_read_error_has_its_offset_and_the_bytes_before_it_are_returned() {
    let folder = folder();
    let path = folder.path().join("file");
    let wanted = content(1 << 20, 1);
    std::fs::write(&path, &wanted).unwrap();
    let faults = plan(Fault::Errno(EIO), Op::Read, 5, 1);
    let mut reader = deep().faults(faults).open(&path).unwrap();
    let mut all = Vec::new();
    let error = reader.read_to_end(&mut all).unwrap_err();
    assert_eq!((error.raw_os_error(), reader.position()), (Some(EIO), 5 * 65536));
    assert!(all.len() == 5 * 65536 && all[..] == wanted[..all.len()]);
    // The fault occurs only once, so the next call succeeds.
    reader.read_to_end(&mut all).unwrap();
    assert!(all == wanted);
}

#[test]
fn bytes_read_before_an_error_are_not_lost() {
    let folder = folder();
    let path = folder.path().join("file");
    let wanted = content(1 << 20, 1);
    std::fs::write(&path, &wanted).unwrap();
    // The third request is short, and its continuation fails.
    let rule = |fault, first| FaultRule { fault, only: Some(Op::Read), first, count: 1 };
    let rules = vec![rule(Fault::Short(8192), 2), rule(Fault::Errno(EIO), 3)];
    let options = Options::new().cache(Cache::Direct).request_bytes(65536).depth(1);
    let mut reader = options.faults(FaultPlan { rules }).open(&path).unwrap();
    let mut all = Vec::new();
    let error = reader.read_to_end(&mut all);
    if error.is_err() {
        assert_eq!(reader.position(), all.len() as u64);
    }
    assert!(all.len() >= 2 * 65536 && all[..] == wanted[..all.len()], "{}", all.len());
    reader.read_to_end(&mut all).unwrap();
    assert!(all == wanted);
}

#[test]
fn a_write_error_is_returned_and_nothing_is_written_after_it() {
    let folder = folder();
    let path = folder.path().join("file");
    let faults = plan(Fault::Errno(ENOSPC), Op::Write, 3, 1);
    let mut writer = deep().faults(faults).create(&path).unwrap();
    let data = content(65536, 1);
    let error = (0..40).find_map(|_| writer.write_all(&data).err()).expect("a write fails");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert_eq!(error.raw_os_error(), Some(ENOSPC));
    let again = writer.write_all(&data).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(ENOSPC), "the writer repeats the first error");
    let error = writer.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

#[test]
fn endless_refusals_of_a_write_end_with_an_error() {
    let folder = folder();
    let faults = plan(Fault::Errno(11), Op::Write, 0, u64::MAX);
    let mut writer = deep().faults(faults).create(folder.path().join("file")).unwrap();
    drop(writer.write_all(&content(3 * 65536, 1)));
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_file_system_that_refuses_direct_io_is_used_through_the_cache() {
    let folder = folder();
    let path = folder.path().join("file");
    let wanted = content(1_000_000, 3);
    let faults = plan(Fault::Errno(EINVAL), Op::Write, 2, 1);
    let mut writer = deep().faults(faults).create(&path).unwrap();
    writer.write_all(&wanted).unwrap();
    writer.finish().unwrap();
    let faults = plan(Fault::Errno(EINVAL), Op::Read, 1, 1);
    let mut all = Vec::new();
    deep().faults(faults).open(&path).unwrap().read_to_end(&mut all).unwrap();
    assert!(all == wanted);
}

#[test]
fn a_file_that_cannot_be_opened_is_the_error_of_the_system() {
    let error = seqio::Reader::open("/no/such/file").unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::NotFound, Some(2)));
    assert_eq!(seqio::Writer::create("/no/such/file").unwrap_err().kind(), ErrorKind::NotFound);
    let error = seqio::Reader::open("/").and_then(|mut reader| reader.next_block().map(drop));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::IsADirectory);
}
