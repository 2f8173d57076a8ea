//! Imports small samples of each format and checks the resulting requests.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::request::{Call, Operation, Request};
use crate::testing::requests_of;

/// Imports a text and returns the header and the requests of the trace.
pub(crate) fn imported(text: &str, format: Format) -> (Header, Vec<Request>) {
    let (header, bytes) = convert_bytes(text.as_bytes(), format).unwrap();
    let requests = requests_of(&bytes);
    (header, requests)
}

/// Imports an invalid text and returns the error message.
pub(crate) fn refused(text: &str, format: Format) -> String {
    let message = convert_bytes(text.as_bytes(), format).unwrap_err().to_string();
    assert!(!message.contains('\n') && message.contains("; "), "{message}");
    message
}

const MSR: &str = "128166372003061629,usr,0,Read,7014609920,24576,41286\r\n\
                   128166372002869395,usr,1,Write,1317441536,8192,1963\r\n";

const SYSTOR: &str = "Timestamp,Response,IOType,LUN,Offset,Size\n\
                      1455592800.000000000,0.000100000,W,4,100,4096\n\
                      1455592801.5,0.25,R,0,512,8192\n\
                      1455592801.6,,,0,0,0\n";

const ALIBABA: &str = "419,W,8792731648,16384,1577808000000046\n\
                       725,R,59110326272,360448,1577808000000500\n";

const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1360\n";

#[test]
fn msr_times_are_file_times_and_rows_need_not_be_in_order() {
    let (header, requests) = imported(MSR, Format::Msr);
    assert_eq!(header.started_unix_ns, Some(1_172_163_600_286_939_500));
    assert_eq!((header.file_name(requests[0].file), requests[0].start_ns), ("usr_1", 0));
    let second = requests[1];
    assert_eq!((second.start_ns, second.latency_ns), (19_223_400, Some(4_128_600)));
    assert_eq!((second.offset, second.bytes), (Some(7_014_609_920), 24_576));
    assert_eq!((second.operation, second.call), (Operation::Read, Call::BLOCK));
    assert_eq!(header.out_of_order, 0);
}

#[test]
fn systor_rows_without_a_type_are_counted_as_lost() {
    let (header, requests) = imported(SYSTOR, Format::Systor);
    assert_eq!(header.lost[0].count, 1);
    assert_eq!(requests.len(), 2);
    assert_eq!((requests[1].start_ns, requests[1].latency_ns), (1_500_000_000, Some(250_000_000)));
    assert_eq!(header.file_name(requests[0].file), "lun4");
    assert_eq!(header.started_unix_ns, Some(1_455_592_800_000_000_000));
}

#[test]
fn alibaba_times_are_microseconds_and_tencent_has_sectors() {
    let (header, requests) = imported(ALIBABA, Format::Alibaba);
    assert_eq!((requests[1].start_ns, requests[1].bytes), (454_000, 360_448));
    assert_eq!(header.file_name(requests[1].file), "device725");
    let (header, requests) = imported(TENCENT, Format::Tencent);
    assert_eq!((requests[0].offset, requests[0].bytes), (Some(12_910_952 * 512), 65_536));
    assert_eq!((requests[1].operation, requests[1].start_ns), (Operation::Write, 1_000_000_000));
    assert_eq!(header.file_name(requests[1].file), "volume1360");
    assert_eq!(header.notes, ["times are whole seconds"]);
}

#[test]
fn waits_of_fio_2_delay_all_that_follows() {
    let log = "fio version 2 iolog\n/d/f add\n/d/f open\n/d/f read 0 4096\n/d/f wait 1500 0\n\
               /d/f write 4096 512\n/d/f datasync 0 0\n/d/f wait 1 0\n/d/f trim 0 65536\n\
               /d/f close\n";
    let (header, requests) = imported(log, Format::FioLog);
    assert_eq!((header.files.len(), header.files[0].name.as_str()), (1, "/d/f"));
    let found: Vec<_> = requests.iter().map(|r| (r.start_ns, r.operation, r.offset)).collect();
    assert_eq!(
        found,
        [
            (0, Operation::Open, None),
            (0, Operation::Read, Some(0)),
            (1_500_000, Operation::Write, Some(4096)),
            (1_500_000, Operation::Flush, None),
            (1_501_000, Operation::Discard, Some(0)),
            (1_501_000, Operation::Close, None),
        ]
    );
    assert_eq!(requests[3].call.name(), "fdatasync");
}

#[test]
fn times_of_fio_3_are_microseconds() {
    let log = "fio version 3 iolog\n17 /d/f add\n116 /d/f open\n119 /d/f read 0 4096\n\
               102723 /d/f write 45056 4096\n\n1004257 /d/f close\n";
    let (_, requests) = imported(log, Format::FioLog);
    let times: Vec<u64> = requests.iter().map(|request| request.start_ns).collect();
    assert_eq!(times, [116_000, 119_000, 102_723_000, 1_004_257_000]);
}

#[test]
fn columns_of_csv_may_be_few_and_in_any_order() {
    let text = "operation,offset,start_ns,file\nread,4096,5,\"a\nb\"\n\nwrite,,7,\n";
    let (header, requests) = imported(text, Format::Csv);
    assert_eq!(header.file_name(requests[0].file), "a\nb");
    assert_eq!((requests[0].offset, requests[0].call), (Some(4096), Call::UNKNOWN));
    assert_eq!((requests[1].start_ns, requests[1].offset), (7, None));
}

#[test]
fn a_bad_line_is_named_with_what_was_expected() {
    let refusals = [
        ("start_ns,operation\n1,read\nx,read\n", Format::Csv, "input:3: expected a whole number"),
        ("start_ns,operation\n1,seek\n", Format::Csv, "input:2: expected the name of an operation"),
        ("start_ns,operation\n1\n", Format::Csv, "input:2: expected as many fields"),
        ("start_ns,operation,x\n", Format::Csv, "input:1: expected only the columns"),
        ("start_ns,operation,file\n1,read,\"a\n", Format::Csv, "input:2: expected a closing quote"),
        ("fio version 4 iolog\n", Format::FioLog, "input:1: expected 'fio version 2 iolog'"),
        ("fio version 2 iolog\nf read 0\n", Format::FioLog, "input:2: expected an offset"),
        ("fio version 3 iolog\nf read 0 1\n", Format::FioLog, "input:2: expected a time"),
        ("fio version 3 iolog\n1 f wait 0 1\n", Format::FioLog, "input:2: expected read, write"),
        ("", Format::FioLog, "input:0: expected"),
        ("1,2\n", Format::Msr, "input:1: expected Timestamp,Hostname,"),
        ("419,X,0,1,1\n", Format::Alibaba, "input:1: expected device_id,opcode"),
    ];
    for (text, format, expected) in refusals {
        let message = refused(text, format);
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn formats_are_known_by_their_first_lines() {
    let samples = [
        (MSR, Format::Msr),
        (SYSTOR, Format::Systor),
        (ALIBABA, Format::Alibaba),
        (TENCENT, Format::Tencent),
        ("fio version 2 iolog\n/d add\n", Format::FioLog),
        ("start_ns,latency_ns,operation\n", Format::Csv),
    ];
    for (text, format) in samples {
        assert_eq!(detect(Path::new("x"), text.as_bytes()).unwrap(), format, "{text}");
        assert_eq!(Format::named(format.name()), Some(format));
    }
    let unknown = detect(Path::new("x.bin"), b"\0\x01nothing").unwrap_err().to_string();
    assert!(unknown.starts_with("the format of x.bin is not known; specify one of: "), "{unknown}");
}

#[test]
fn a_refused_import_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("a.csv"), folder.path().join("a.trace"));
    fs::write(&input, ALIBABA.to_owned() + "broken\n").unwrap();
    let error = convert(&input, Format::Alibaba, &output).unwrap_err().to_string();
    assert!(error.contains("a.csv:3: expected"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    fs::write(&input, ALIBABA).unwrap();
    let header = convert(&input, detect_file(&input).unwrap(), &output).unwrap();
    assert_eq!((header.requests, header.source.as_str()), (2, "alibaba"));
    assert_eq!(crate::TraceReader::open(&output).unwrap().header(), &header);
}

/// Words of all formats. Random sequences of these words are almost valid lines.
const WORDS: [&str; 28] = [
    "fio version 2 iolog\n",
    "fio version 3 iolog\n",
    "start_ns,operation,file\n",
    "\n",
    ",",
    " ",
    "0",
    "1538323200",
    "18446744073709551615",
    "-1",
    "R",
    "W",
    "Read",
    "wait",
    "read",
    "\"",
    "1.5",
    "/d/f",
    "add",
    "\r\n",
    "128166372003061629",
    "usr",
    "é",
    "512",
    "8,0 1 1 0.5 7 ",
    "D",
    "C",
    "[0]",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_an_importer_panic(
        words in proptest::collection::vec(prop::sample::select(WORDS.to_vec()), 0..40),
        bytes: Vec<u8>,
    ) {
        let text = [words.concat().as_bytes(), &bytes].concat();
        for format in Format::ALL {
            match convert_bytes(&text, format) {
                Ok((header, trace)) => {
                    prop_assert_eq!(requests_of(&trace).len() as u64, header.requests);
                }
                Err(error) => prop_assert!(error.to_string().contains("; ")),
            }
        }
        let _ = detect(Path::new("x"), &text);
    }
}

mod block;
mod strace;
