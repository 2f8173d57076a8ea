//! The executable. All of its code is in the library of this crate, where fuzz targets can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    halfpower::main()
}
