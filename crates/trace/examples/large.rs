//! Writes or reads a trace of many requests. Prints the size of the file, the peak memory use, and
//! the CPU time.
//!
//! Usage: `large write PATH [REQUESTS]`, then `large read PATH`. `large import INPUT PATH` imports
//! a trace of another tool instead.
//!
//! `large write` simulates eight threads with one request in flight each. The requests have random
//! offsets in 1 TiB, four sizes, and latencies of about 100 us. 1% of the latencies are up to 5 ms
//! longer. The program prints CPU time instead of elapsed time, because other programs may run at
//! the same time.

use std::path::Path;

use trace::{Call, FileId, Header, Operation, Request, TraceReader, TraceWriter};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[allow(clippy::print_stdout)] // The example prints its results.
fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().collect();
    let (Some(verb), Some(path)) = (words.get(1), words.get(2)) else {
        return Err("usage: large write PATH [REQUESTS] | read PATH | import INPUT PATH".into());
    };
    let path = Path::new(path);
    let requests = match verb.as_str() {
        "write" => write(path, words.get(3).map_or(Ok(10_000_000), |number| number.parse())?)?,
        "import" => {
            let output = Path::new(words.get(3).ok_or("the path of the trace is missing")?);
            trace::import::convert(path, trace::import::detect_file(path)?, output)?.requests
        }
        _ => read(path)?,
    };
    let bytes = std::fs::metadata(path)?.len();
    let cpu_ns = cpu_ns()?;
    println!("requests          {requests}");
    println!("file              {:.1} MB", bytes as f64 / 1e6);
    println!("CPU time          {:.2} s", cpu_ns as f64 / 1e9);
    println!("requests per s    {:.2} million", requests as f64 / cpu_ns as f64 * 1e3);
    println!("peak memory (RSS) {:.1} MiB", resident_kib()? as f64 / 1024.0);
    Ok(())
}

fn write(path: &Path, number: u64) -> Outcome<u64> {
    let mut writer = TraceWriter::create(path)?;
    writer.add_file("/dev/nvme0n1");
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let mut next_ns = [0_u64; 8];
    for _ in 0..number {
        let thread = (0..8).min_by_key(|thread| next_ns[*thread]).unwrap_or(0);
        let tail = if random() % 100 == 0 { random() % 5_000_000 } else { 0 };
        let latency_ns = 60_000 + random() % 50_000 + random() % 50_000 + tail;
        let start_ns = next_ns[thread];
        next_ns[thread] += latency_ns + 2000 + random() % 1000;
        let bytes = [4096, 4096, 8192, 16384, 65536][(random() % 5) as usize];
        writer.push(&Request {
            start_ns,
            latency_ns: Some(latency_ns),
            process: 4711,
            thread: 4712 + thread as u32,
            call: Call::LIBAIO,
            operation: [Operation::Read, Operation::Write][(random() % 2) as usize],
            file: FileId(0),
            offset: Some((random() % (1 << 28)) * 4096),
            bytes,
            result: Some(bytes as i64),
            direct: true,
            durable: false,
            device_bytes: Some(bytes),
            sleeps: Some(1),
        })?;
    }
    Ok(writer.finish(Header { source: "example".to_owned(), ..Header::default() })?.requests)
}

fn read(path: &Path) -> Outcome<u64> {
    let (mut requests, mut bytes) = (0, 0);
    for request in TraceReader::open(path)? {
        bytes += request?.moved_bytes();
        requests += 1;
    }
    if bytes == 0 { Err("no request moved a byte".into()) } else { Ok(requests) }
}

/// Returns the CPU time that this process has used (ns; proc(5), schedstat).
fn cpu_ns() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Returns the peak resident set size of this process (KiB; proc(5), VmHWM).
fn resident_kib() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.unwrap_or_default().trim().trim_end_matches(" kB").parse()?)
}
