//! The binary. All code is in the library of this crate, where fuzz targets can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    halfpower::main()
}
