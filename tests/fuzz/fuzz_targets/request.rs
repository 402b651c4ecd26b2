//! libFuzzer's entry to the target for the request parser.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: m0serve_fuzz::request::Input| input.check());
