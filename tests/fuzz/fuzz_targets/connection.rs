//! libFuzzer's entry to the target for the connection state machine.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: m0serve_fuzz::connection::Input| input.check());
