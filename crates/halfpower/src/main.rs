//! The binary: everything it does is in the library beside it, where fuzz targets reach it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    halfpower::main()
}
