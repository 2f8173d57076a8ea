//! Runs the target `trace_import` of `halfpower::fuzz` on what libFuzzer makes up.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| halfpower::fuzz::run("trace_import", data));
