//! Runs the target `network_server` of `halfpower::fuzz` on what libFuzzer makes up.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| halfpower::fuzz::run("network_server", data));
