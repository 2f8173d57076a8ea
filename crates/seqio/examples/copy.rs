//! Copies a file with several requests in flight and makes the copy durable, like `cp FROM TO`
//! followed by `sync TO`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, from, to] = &arguments[..] else {
        println!("usage: copy FROM TO");
        std::process::exit(2);
    };
    let bytes = seqio::copy(from, to)?;
    std::fs::File::open(to)?.sync_all()?;
    println!("{bytes} bytes");
    Ok(())
}
