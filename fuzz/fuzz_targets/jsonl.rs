//! A data file with arbitrary bytes gives samples, problems with line numbers, or an error, but never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use probity_data::{Sample, importers, read_from};

fuzz_target!(|data: &[u8]| {
    if let Ok(report) = read_from::<Sample>(data, "fuzzed.jsonl".into(), None) {
        let lines = data.iter().filter(|&&byte| byte == b'\n').count() + 1;
        assert!(report.records.iter().all(|(line, _)| (1..=lines).contains(line)));
    }
    for importer in importers() {
        let _ = importer.import_bytes(data, "fuzzed.json");
    }
});
