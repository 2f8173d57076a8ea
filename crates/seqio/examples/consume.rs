//! Reads a file in a named way and prints the rate: what `cargo xtask bench seqio` runs.
#![allow(clippy::print_stdout, reason = "an example speaks on the terminal")]

use std::io::{BufRead, Read};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, way, path] = &arguments[..] else {
        println!("usage: consume blocks|read|bufread FILE");
        std::process::exit(2);
    };
    let mut reader = seqio::Reader::open(path)?;
    let mut bytes = 0_u64;
    match way.as_str() {
        "blocks" => {
            while let Some(block) = reader.next_block()? {
                bytes += std::hint::black_box(&*block).len() as u64;
            }
        }
        "bufread" => loop {
            let ready = std::hint::black_box(reader.fill_buf()?).len();
            if ready == 0 {
                break;
            }
            reader.consume(ready);
            bytes += ready as u64;
        },
        _ => {
            let mut buffer = vec![0; 128 << 10];
            loop {
                let read = reader.read(&mut buffer)?;
                if read == 0 {
                    break;
                }
                bytes += std::hint::black_box(&buffer[..read]).len() as u64;
            }
        }
    }
    println!("{bytes} bytes, {}", reader.plan());
    Ok(())
}
