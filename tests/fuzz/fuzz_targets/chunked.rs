//! libFuzzer's entry to the target for the chunked decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: m0serve_fuzz::chunked::Input| input.check());
