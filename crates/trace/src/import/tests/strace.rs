//! Imports strace output and checks the resulting requests, including offsets that are derived from
//! earlier calls.

use super::*;
use crate::testing::skip;

type Told = (&'static str, Option<u64>, u64, i64, String);

/// Imports a text. Returns the header, and for each request the name of the call, the offset, the
/// length, the result and the name of the file.
fn told(text: &str) -> (Header, Vec<Told>) {
    let (header, requests) = imported(text, Format::Strace);
    let tell = |r: &Request| {
        let file = header.file_name(r.file).to_owned();
        (r.call.name(), r.offset, r.bytes, r.result.unwrap_or_default(), file)
    };
    let told = requests.iter().map(tell).collect();
    (header, told)
}

#[test]
fn offsets_follow_from_open_lseek_dup_and_the_calls() {
    let text = r#"
1.000001 execve("/bin/x", ["x", "a)b"], 0x7ffd /* 35 vars */) = 0 <0.000300>
1.000010 openat(AT_FDCWD, "/d/a", O_RDWR|O_CREAT|O_DIRECT|O_DSYNC, 0644) = 3 <0.000020>
1.000011 write(3, "abc\"), 77) = \\"..., 8192) = 8192 <0.000061>
1.000012 lseek(3, 100, SEEK_SET)  = 100 <0.000002>
1.000013 read(3, "x", 50)         = 50 <0.000002>
1.000014 fcntl(3, F_DUPFD_CLOEXEC, 0) = 4 <0.000002>
1.000015 read(4, ""..., 10)       = 5 <0.000002>
1.000016 readv(3, [{iov_base="abc", iov_len=3}, {iov_base="", iov_len=4}], 2) = 0 <0.000002>
1.000017 pwrite64(4, "bb", 2, 4096) = 2 <0.000002>
1.000018 close(4)                 = 0 <0.000002>
1.000019 fsync(3)                 = -1 EIO (Input/output error) <0.005000>
1.000020 preadv2(3, [{iov_base="aa", iov_len=10}], 1, -1, RWF_DSYNC) = 10
1.000021 ftruncate(3, 4096)       = 0 <0.000002>
1.000022 fallocate(3, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 0, 512) = 0 <0.000002>
1.000023 open("b", O_WRONLY|O_APPEND) = 4 <0.000002>
1.000024 write(4, "x", 1)         = 1 <0.000002>
1.000025 copy_file_range(3, [64], 4, NULL, 100, 0) = 60 <0.000002>
1.000026 sendfile(4, 3, [0] => [7], 7) = 7 <0.000002>
1.000027 read(0, "", 1)           = 0 <0.000002>
1.000028 exit_group(0)            = ?
1.000029 +++ exited with 0 +++
"#;
    let (header, told) = told(text);
    let a = |call, offset, bytes, result| (call, offset, bytes, result, "/d/a".to_owned());
    let b = |call, offset, bytes, result| (call, offset, bytes, result, "b".to_owned());
    assert_eq!(
        told,
        [
            a("openat", None, 0, 3),
            a("write", Some(0), 8192, 8192),
            a("read", Some(100), 50, 50),
            a("read", Some(150), 10, 5),
            a("readv", Some(155), 7, 0),
            a("pwrite64", Some(4096), 2, 2),
            a("close", None, 0, 0),
            a("fsync", None, 0, -5),
            a("preadv2", Some(155), 10, 10),
            a("ftruncate", Some(4096), 0, 0),
            a("fallocate", Some(0), 512, 0),
            b("open", None, 0, 4),
            b("write", None, 1, 1),
            a("copy_file_range", Some(64), 100, 60),
            b("copy_file_range", None, 100, 60),
            a("sendfile", Some(0), 7, 7),
            b("sendfile", None, 7, 7),
            ("read", None, 1, 0, "stdin".to_owned()),
        ]
    );
    assert_eq!(header.started_unix_ns, Some(1_000_010_000));
    assert_eq!(header.files[0].end_bytes, 8192);
    let (_, requests) = imported(text, Format::Strace);
    assert_eq!((requests[1].start_ns, requests[1].latency_ns), (1000, Some(61_000)));
    assert!(requests[1].direct && requests[1].durable && !requests[12].direct);
    assert_eq!((requests[10].operation, requests[8].latency_ns), (Operation::Discard, None));
}

#[test]
fn positions_beyond_2_gib_are_followed() {
    let text = "\
1.000001 openat(AT_FDCWD, \"/d/a\", O_RDONLY) = 3 <0.000020>
1.000002 lseek(3, 4294967296, SEEK_SET)  = 4294967296 <0.000002>
1.000003 read(3, \"x\", 50)         = 50 <0.000002>
1.000004 read(3, \"x\", 50)         = 50 <0.000002>
";
    let (_, told) = told(text);
    let offsets: Vec<_> = told.iter().map(|(_, offset, ..)| *offset).collect();
    assert_eq!(offsets, [None, Some(4 << 30), Some((4 << 30) + 50)]);
}

#[test]
fn interrupted_calls_are_joined_and_threads_share_their_descriptors() {
    let text = "\
10 5.0 openat(AT_FDCWD</w>, \"a\", O_RDONLY <unfinished ...>
strace: Process 11 attached
10 5.000001 <... openat resumed>) = 3</w/a> <0.000005>
10 5.1 clone3({flags=CLONE_FILES|CLONE_THREAD}, 88 => {parent_tid=[11]}, 88) = 11 <0.1>
11 5.2 read(3</w/a>,  <unfinished ...>
10 5.3 read(3</w/a>, \"x\", 10) = 10 <0.000010>
11 5.4 <... read resumed>\"y\"..., 100) = 100 <0.200010>
[pid    10] 5.5 vfork(strace: Process 12 attached
[pid    10] 5.51 <... vfork resumed>) = 12 <0.000361>
12 5.6 close(3</w/a>) = 0 <0.000001>
10 5.7 read(3</w/a>, \"\", 10) = 0 <0.000010>
10 5.8 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---
10 5.9 read(5<TCP:[127.0.0.1:1->127.0.0.1:2]>, \"\", 10) = 0 <0.000010>
10 5.91 pipe2([6<pipe:[112]>, 7<pipe:[112]>], 0) = 0 <0.000016>
10 5.92 write(7<pipe:[112]>, \"1\", 1) = 1 <0.000016>
10 5.93 futex(0x7f <unfinished ...>
11 5.94 read(8</w/b\\76,\\n>, \"\", 10) = -1 EAGAIN (Try again) <0.1>
10 5.95 +++ killed by SIGKILL +++
";
    let (header, told) = told(text);
    let a = |call, offset, bytes, result| (call, offset, bytes, result, "/w/a".to_owned());
    assert_eq!(
        told,
        [
            a("openat", None, 0, 3),
            a("read", Some(10), 100, 100),
            a("read", Some(0), 10, 10),
            a("close", None, 0, 0),
            a("read", Some(110), 10, 0),
            ("read", None, 10, -11, "/w/b>,\n".to_owned()),
        ]
    );
    let (_, requests) = imported(text, Format::Strace);
    assert_eq!((requests[1].process, requests[1].thread), (10, 11));
    assert_eq!((requests[1].start_ns, requests[1].latency_ns), (200_000_000, Some(200_010_000)));
    assert_eq!(requests[3].process, 12);
    assert_eq!(header.lost[0].count, 1, "{:?}", header.lost);
    assert!(header.notes[0].starts_with("2 reads and writes of sockets"), "{:?}", header.notes);
}

#[test]
fn a_process_closes_its_own_copy_of_a_descriptor() {
    let text = "\
1 1.0 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3 <0.1>
1 1.1 fork() = 2 <0.1>
2 1.2 read(3, \"\", 7) = 7 <0.1>
2 1.3 close(3) = 0 <0.1>
1 1.4 read(3, \"\", 5) = 5 <0.1>
";
    let (_, told) = told(text);
    assert_eq!((told[3].1, told[3].4.as_str()), (Some(7), "/a"));
}

#[test]
fn what_is_no_output_of_strace_is_refused() {
    for (line, expected) in [
        ("close(3) = 0\n", "a call such as"),
        ("1 1.0 close(3) 0\n", "a call with its result"),
        ("1 1.0 read(3, \"abc\n", "a call with its result"),
        ("1 17:00:01.5 close(3) = 0\n", "a call such as"),
        ("1 1.0 read(3, <unfinished ...>\n1 1.1 <... read resumed>\n", "the rest of a call"),
    ] {
        let message = refused(line, Format::Strace);
        assert!(message.contains(&format!(": expected {expected}")), "{message}");
    }
    let first = b"strace: Process 5 attached\n5  1.000001 close(3) = 0 <0.1>\n";
    assert_eq!(detect(Path::new("x"), first).unwrap(), Format::Strace);
}

#[test]
#[ignore = "runs strace"]
fn strace_with_and_without_paths_tells_the_same_of_a_real_program() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    for flags in [&["-f", "-y"][..], &["-f"], &["-y"], &[]] {
        let traced = std::process::Command::new("strace")
            .args(["-ttt", "-T", "-o", log.to_str().unwrap()])
            .args(flags)
            .args(["dd", "if=/dev/zero", "bs=4096", "count=10", "seek=3", "conv=fsync"])
            .arg(format!("of={}", data.display()))
            .output();
        if !traced.is_ok_and(|traced| traced.status.success()) {
            skip("strace_with_and_without_paths", "strace cannot trace here");
            return;
        }
        let output = folder.path().join("trace");
        let header = convert(&log, detect_file(&log).unwrap(), &output).unwrap();
        let requests: Vec<Request> =
            crate::TraceReader::open(&output).unwrap().map(Result::unwrap).collect();
        let of_data = |r: &&Request| header.file_name(r.file) == data.to_str().unwrap();
        let writes = requests.iter().filter(of_data).filter(|r| r.operation == Operation::Write);
        let found: Vec<_> = writes.map(|r| (r.offset, r.bytes)).collect();
        let expected: Vec<_> = (3..13).map(|at| (Some(at * 4096), 4096)).collect();
        assert_eq!(found, expected, "{flags:?}");
        assert!(requests.iter().any(|r| r.call.name() == "fsync" && r.latency_ns > Some(0)));
        fs::remove_file(&output).unwrap();
        fs::remove_file(&data).unwrap();
    }
}

const PIECES: [&str; 22] = [
    "1 1.0 ",
    "1 1.5 ",
    "2 2.0 ",
    "read(",
    "openat(AT_FDCWD, \"/a\", O_RDWR",
    "3",
    "4",
    "<... read ",
    "resumed>",
    "<unfinished ...>",
    ", ",
    "\"",
    "\\",
    "[",
    "]",
    ")",
    ") = 3 <0.1>\n",
    ") = -1 E (",
    "</a>",
    "clone(CLONE_FILES) = 2\n",
    "\n",
    "pread64(3, \"\", 5, 6) = 5\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn pieces_of_strace_are_read_or_refused(
        pieces in proptest::collection::vec(prop::sample::select(PIECES.to_vec()), 0..30),
    ) {
        if let Ok((header, trace)) = convert_bytes(pieces.concat().as_bytes(), Format::Strace) {
            prop_assert_eq!(requests_of(&trace).len() as u64, header.requests);
        }
    }
}
