//! A table with arbitrary bytes, in any format and compressed or not, gives samples, problems with line numbers, or an
//! error, but never a panic.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use probity_data::{DataFormat, Mapping, SampleSource};

/// The first byte selects the format and the mapping.
static SOURCES: LazyLock<Vec<SampleSource>> = LazyLock::new(|| {
    let mappings: [&[&str]; 5] = [
        &[],
        &["context=a", "candidate=b", "candidate.x=c", "score.x.f=d", "preference=e", "reference=f", "preference.1=x"],
        &["id=a", "context=b", "candidate=c", "candidate-id=d", "score.f=e", "preference=f", "instruction=g"],
        &[
            "id=a",
            "instruction=b.c[0]",
            "candidate=c[].text",
            "candidate-id=c[].id",
            "score.f=c[].f",
            "reference=c[].text",
        ],
        &["id=id", "context=context", "candidate=candidates", "reference=references", "preference=preference"],
    ];
    let formats =
        [None, Some(DataFormat::Jsonl), Some(DataFormat::Csv), Some(DataFormat::Tsv), Some(DataFormat::Parquet)];
    let source = |format, map: &[&str]| SampleSource {
        format,
        map: Mapping::new(map.iter().map(|entry| entry.parse().expect("an entry"))).expect("a mapping"),
        ..SampleSource::new("fuzzed")
    };
    formats.into_iter().flat_map(|format| mappings.map(|map| source(format, map))).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let source = &SOURCES[usize::from(choice) % SOURCES.len()];
    let Ok(mut file) = source.open_from(std::io::Cursor::new(bytes.to_vec())) else { return };
    // A small Parquet file may legitimately contain millions of rows.
    let rows = file.records.by_ref().take(10_000);
    assert!(rows.into_iter().all(|(line, sample)| line > 0 && !sample.id.is_empty() && sample.check().is_empty()));
    file.unmapped();
    let problems = file.records.into_problems();
    assert!(problems.to_string().chars().all(|c| c == '\n' || !c.is_control()));
});
