//! Exports traces, imports the results, and checks that the requests are the same. Fields that the
//! export format does not have are not compared.

use proptest::prelude::*;

use super::*;
use crate::import::{Format, convert_bytes};
use crate::request::{Call, FileId};
use crate::testing::{any_requests, requests_of, skip, stored};

fn reader(bytes: &[u8]) -> TraceReader {
    TraceReader::of_bytes(bytes.to_vec(), "test").unwrap()
}

/// Returns each request of a trace with the name of its file. The number of the file is set to 0,
/// because it can change on import.
fn named(bytes: &[u8]) -> Vec<(Request, String)> {
    let header = reader(bytes).header().clone();
    let name = |request: &Request| header.file_name(request.file).to_owned();
    let requests = requests_of(bytes);
    requests.iter().map(|r| (Request { file: FileId(0), ..*r }, name(r))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_stay_the_same_through_csv(requests in any_requests()) {
        let (_, bytes) = stored(&requests);
        let mut text = Vec::new();
        let exported = csv(reader(&bytes), &mut text, "test").unwrap();
        prop_assert_eq!(exported, Exported { requests: requests.len() as u64, left_out: 0 });
        let (header, again) = convert_bytes(&text, Format::Csv).unwrap();
        prop_assert_eq!(header.out_of_order, 0);
        prop_assert_eq!(named(&again), named(&bytes));
    }

    #[test]
    fn requests_stay_the_same_through_a_log_of_fio(requests in any_requests()) {
        let (_, bytes) = stored(&requests);
        let mut text = Vec::new();
        let exported = fio_log(reader(&bytes), &mut text, "test").unwrap();
        prop_assert_eq!(exported.requests + exported.left_out, requests.len() as u64);
        let (_, again) = convert_bytes(&text, Format::FioLog).unwrap();
        let log_names = fio_names(&reader(&bytes));
        let kept = requests.iter().filter(|request| fio_action(request).is_some());
        let expected: Vec<_> = kept.map(|request| {
            let bytes = if request.operation == Operation::Flush { 0 } else { request.bytes };
            let offset = request.offset.filter(|_| request.operation != Operation::Flush);
            let name = log_names[request.file.0 as usize].clone();
            (request.start_ns / 1000, request.operation, offset, bytes, name)
        }).collect();
        let again = named(&again).into_iter().filter(|(request, _)| {
            !matches!(request.operation, Operation::Open | Operation::Close)
        });
        let found: Vec<_> = again.map(|(request, name)| {
            (request.start_ns / 1000, request.operation, request.offset, request.bytes, name)
        }).collect();
        prop_assert_eq!(found, expected);
    }
}

fn request(operation: Operation, call: &str, offset: Option<u64>) -> Request {
    Request {
        start_ns: 2_500_000,
        latency_ns: Some(10),
        process: 1,
        thread: 2,
        call: Call::named(call).unwrap(),
        operation,
        file: FileId(1),
        offset,
        bytes: 4096,
        result: Some(-5),
        direct: true,
        durable: false,
        device_bytes: None,
        sleeps: None,
    }
}

#[test]
fn csv_has_names_of_columns_and_leaves_unknown_fields_empty() {
    let (_, bytes) = stored(&[request(Operation::Read, "pread64", None)]);
    let mut text = Vec::new();
    csv(reader(&bytes), &mut text, "test").unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "start_ns,latency_ns,process,thread,call,operation,file,offset,bytes,result,direct,\
         durable,device_bytes,sleeps\n\
         2500000,10,1,2,pread64,read,\"b,\"\"c\"\"\",,4096,-5,true,false,,\n"
    );
}

#[test]
fn a_log_of_fio_opens_a_file_before_its_first_request_and_leaves_out_what_has_no_place() {
    let (_, bytes) = stored(&[
        request(Operation::Read, "pread64", Some(8192)),
        request(Operation::Write, "write", None),
        request(Operation::Flush, "fdatasync", None),
        request(Operation::Close, "close", None),
    ]);
    let mut text = Vec::new();
    let exported = fio_log(reader(&bytes), &mut text, "test").unwrap();
    assert_eq!(exported, Exported { requests: 2, left_out: 2 });
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "fio version 3 iolog");
    let rest = ["add", "open", "read 8192 4096", "datasync 0 0", "close"];
    let rest = rest.map(|rest| format!("2500 b,\"c\" {rest}"));
    assert_eq!(lines[1..], rest, "{text}");
}

/// Returns whether the installed fio can read logs of version 3, as fio 3.31 and later can.
fn fio_reads_version_3() -> bool {
    let version = std::process::Command::new("fio").arg("--version").output();
    let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut numbers = text.trim().trim_start_matches("fio-").split(['.', '-']);
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    (number(), number()) >= (3, 31)
}

#[test]
#[ignore = "runs fio"]
fn fio_replays_an_exported_log() {
    if !fio_reads_version_3() {
        skip("fio_replays_an_exported_log", "there is no fio 3.31 or later");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    std::fs::write(&data, vec![1; 1 << 20]).unwrap();
    let mut writer = crate::TraceWriter::to(Vec::new(), "test").unwrap();
    let file = writer.add_file(data.to_str().unwrap());
    for at in 0..64 {
        let operation = if at % 4 == 0 { Operation::Write } else { Operation::Read };
        let request = request(operation, "pread64", Some(at * 4096));
        writer.push(&Request { file, start_ns: at * 1_000_000, ..request }).unwrap();
    }
    let (_, bytes) = writer.finish_into(crate::Header::default()).unwrap();
    let mut out = std::fs::File::create(&log).unwrap();
    fio_log(reader(&bytes), &mut out, "log").unwrap();
    let fio = std::process::Command::new("fio")
        .args(["--name=replay", "--ioengine=psync", "--output-format=json"])
        .arg(format!("--read_iolog={}", log.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&fio.stdout);
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let ios = |side: &str| json["jobs"][0][side]["total_ios"].as_u64();
    assert_eq!((ios("read"), ios("write")), (Some(48), Some(16)), "{text}");
    let runtime_ms = json["jobs"][0]["job_runtime"].as_u64().unwrap();
    assert!(runtime_ms >= 55, "fio ignored the times of the log: it ran for only {runtime_ms} ms");
}
