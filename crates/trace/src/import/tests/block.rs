//! Imports events of the block layer from the text output of blkparse and from the binary files of
//! blktrace.

use super::*;

const TEXT: &str = "Input file sda.blktrace.0 added
  8,0    1        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    1        2     0.000001000   697  Q   W 223490 + 8 [kjournald]
  8,0    1        3     0.000002000   697  G   W 223490 + 8 [kjournald]
  8,0    1        4     0.000003000   697  P   N [kjournald]
  8,0    1        5     0.000004000   697  Q   W 223498 + 8 [kjournald]
  8,0    1        6     0.000005000   697  M   W 223498 + 8 [kjournald]
  8,0    1        7     0.000006000   697  U   N [kjournald] 1
  8,0    1        0     0.000006500     0  m   N cfq697A / dispatched a request
  8,0    1        8     0.000007000   697  D   W 223490 + 16 [kjournald]
  8,0    0        1     0.000008000   800  Q  RA 100 + 1 [cat]
  8,0    0        2     0.000009000   800  D  RA 100 + 1 [cat]
  8,0    0        3     0.000011000     0  C  RA 100 + 1 [65531]
  8,0    1        9     0.000107000     0  C   W 223490 + 16 [0]
  8,0    1       10     0.000200000   697  Q FWS [kjournald]
  8,0    1       11     0.000201000   697  D  FN [kjournald]
  8,0    1       12     0.000301000     0  C  FN 0 [0]
  8,0    1       13     0.000400000   697  Q WFS 8 + 8 [kjournald]
  8,0    1       14     0.000401000   697  D WFS 8 + 8 [kjournald]
  8,0    1       15     0.000411000     0  C WFS 8 + 8 (   10000) [0]
  8,0    1       16     0.000500000     0  C   R 7777 + 8 [0]
253,0    1       17     0.000600000   900  Q   R 64 + 8 [fio]
253,0    1       18     0.000650000     0  C   R 64 + 8 [0]
  8,0    1       19     0.000700000   697  D   D 4096 + 2048 [fstrim]
CPU0 (8,0):
 Reads Queued:           1,        0KiB\t Writes Queued:          4,       16KiB
Total (8,0):
";

#[test]
fn a_request_of_the_block_layer_is_from_issue_to_completion() {
    let (header, requests) = imported(TEXT, Format::Blkparse);
    let found: Vec<_> = requests
        .iter()
        .map(|r| (r.start_ns, r.latency_ns, r.operation.name(), r.offset, r.bytes, r.result))
        .collect();
    assert_eq!(
        found,
        [
            (0, Some(100_000), "write", Some(223_490 * 512), 8192, Some(8192)),
            (2_000, Some(2_000), "read", Some(51_200), 512, Some(-5)),
            (194_000, Some(100_000), "flush", None, 0, Some(0)),
            (394_000, Some(10_000), "write", Some(4096), 4096, Some(4096)),
            (593_000, Some(50_000), "read", Some(32_768), 4096, Some(4096)),
        ]
    );
    assert_eq!(
        requests.iter().map(|r| r.durable).collect::<Vec<_>>(),
        [false, false, false, true, false]
    );
    assert_eq!(requests[0].process, 697);
    assert!(header.processes.iter().any(|p| (p.id, p.name.as_str()) == (697, "kjournald")));
    let names: Vec<&str> = header.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["8,0", "253,0"]);
    let lost: Vec<_> = header.lost.iter().map(|loss| (loss.cause.as_str(), loss.count)).collect();
    assert_eq!(
        lost,
        [
            ("completions of requests that began before the trace", 1),
            ("requests unfinished at the end of the trace", 1),
        ]
    );
    assert!(header.notes[0].contains("waited in the queue before issue, 2.2 us"), "{header:?}");
    assert!(header.notes[1].starts_with("1 requests have no issue event"), "{header:?}");
}

#[test]
fn a_line_that_is_no_event_is_refused() {
    for (line, expected) in [
        ("8,0 1 1 0.0 697 Q\n", "an event such as"),
        ("8,0 1 1 0.0 697 Z W 1 + 8 [x]\n", "one of the actions"),
        ("8,0 1 1 0.0 697 D W one + 8 [x]\n", "a sector and a number"),
        ("8,0 1 1 0.0 697 C W 1 + 8 [x]\n", "an error number"),
        ("8,0 1 1 0,1 697 C W 1 + 8 [0]\n", "an event such as"),
    ] {
        let message = refused(line, Format::Blkparse);
        assert!(message.starts_with(&format!("input:1: expected {expected}")), "{message}");
    }
    assert_eq!(detect(Path::new("x"), TEXT.as_bytes()).unwrap(), Format::Blkparse);
}

/// Encodes a blktrace record.
fn record(
    big_endian: bool,
    at_ns: u64,
    sector: u64,
    (bytes, action, process, error): (u32, u32, u32, u16),
    data: &[u8],
) -> Vec<u8> {
    let mut raw = Vec::new();
    let device: u32 = (8 << 20) | 16;
    macro_rules! put {
        ($($number:expr),*) => {
            $(raw.extend(if big_endian { $number.to_be_bytes() } else { $number.to_le_bytes() });)*
        };
    }
    put!(0x6561_7407_u32, 0_u32, at_ns, sector, bytes, action, process, device, 0_u32, error);
    put!(data.len() as u16);
    raw.extend(data);
    raw
}

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;

/// Returns the blktrace files of two CPUs. Each request is issued on one CPU and completed on the
/// other.
fn files(big: bool) -> [Vec<u8>; 2] {
    let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let time = [word(1_700_000_000), word(500)].concat();
    let first = [
        record(big, 1000, 0, (0, 1 << 26, 42, 0), b"worker\0\0"),
        record(big, 1000, 0, (0, (1 << 26) | 1, 0, 0), &time),
        record(big, 2000, 64, (4096, READ | 1, 42, 0), &[]),
        record(big, 3000, 64, (4096, READ | 7, 42, 0), b"cgroup"),
        record(big, 9000, 8, (512, WRITE | 8 | 1 << 8, 0, 0xfffb), &[]),
    ];
    let second = [
        record(big, 4000, 8, (512, WRITE | 1 << 31 | 7, 43, 0), &[]),
        record(big, 7000, 64, (4096, READ | 8, 0, 0), &[]),
    ];
    [first.concat(), second.concat()]
}

#[test]
fn files_of_all_cpus_and_both_byte_orders_are_merged() {
    for big_endian in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        for (cpu, bytes) in files(big_endian).iter().enumerate() {
            fs::write(folder.path().join(format!("sdb.blktrace.{cpu}")), bytes).unwrap();
        }
        fs::write(folder.path().join("sdb.blktrace.x"), "not a part").unwrap();
        let (input, output) = (folder.path().join("sdb.blktrace.1"), folder.path().join("out"));
        assert_eq!(detect_file(&input).unwrap(), Format::Blktrace);
        let header = convert(&input, Format::Blktrace, &output).unwrap();
        let requests: Vec<Request> =
            crate::TraceReader::open(&output).unwrap().map(Result::unwrap).collect();
        let found: Vec<_> = requests
            .iter()
            .map(|r| (r.start_ns, r.latency_ns, r.operation, r.offset, r.result, r.durable))
            .collect();
        assert_eq!(
            found,
            [
                (0, Some(4000), Operation::Read, Some(32_768), Some(4096), false),
                (1000, Some(5000), Operation::Write, Some(4096), Some(-5), true),
            ]
        );
        assert_eq!(header.started_unix_ns, Some(1_700_000_000_000_002_500));
        assert_eq!((header.processes[0].id, header.processes[0].name.as_str()), (42, "worker"));
        assert_eq!(header.files[0].name, "8,16");
        assert!(header.lost.is_empty());
    }
}

#[test]
fn a_damaged_file_of_blktrace_is_refused_with_the_place() {
    let [file, _] = files(false);
    let cut = &file[..file.len() - 1];
    let message = convert_bytes(cut, Format::Blktrace).unwrap_err().to_string();
    assert!(message.starts_with("input, byte 214: the file ends within a record; "), "{message}");
    let message = convert_bytes(&[7; 100], Format::Blktrace).unwrap_err().to_string();
    assert!(message.starts_with("input, byte 0: this is not a record of blktrace"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn changed_files_of_blktrace_are_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let [mut file, _] = files(false);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok((header, trace)) = convert_bytes(&file, Format::Blktrace) {
            prop_assert_eq!(requests_of(&trace).len() as u64, header.requests);
        }
    }
}
