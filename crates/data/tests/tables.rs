//! Tables written by pandas and pyarrow (`scripts/goldens/make_tables.py`), read as samples.

use std::path::PathBuf;

use probity_data::{DataFormat, Mapping, Sample, SampleSource};

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../tests/goldens/tables", name].iter().collect()
}

fn read(name: &str, map: &[&str]) -> (Vec<Sample>, DataFormat, Vec<String>) {
    let entries = map.iter().map(|entry| entry.parse().expect("an entry"));
    let source = SampleSource { map: Mapping::new(entries).expect("a mapping"), ..SampleSource::new(golden(name)) };
    let mut file = source.open().unwrap_or_else(|error| panic!("{name}: {error}"));
    let samples = file.records.by_ref().map(|(_, sample)| sample).collect();
    let (format, unmapped) = (file.format, file.unmapped());
    let problems = file.records.into_problems();
    assert!(problems.is_empty(), "{name}: {problems}");
    (samples, format, unmapped)
}

fn expected() -> Vec<Sample> {
    SampleSource::new(golden("expected.jsonl")).samples().expect("our own form")
}

#[test]
fn our_own_form_is_read_from_parquet_in_every_compression() {
    for kind in ["none", "snappy", "gzip", "brotli", "zstd", "lz4", "plain-v2"] {
        let (samples, format, unmapped) = read(&format!("nested-{kind}.parquet"), &[]);
        assert_eq!((samples, format, unmapped), (expected(), DataFormat::Parquet, Vec::new()), "{kind}");
    }
}

#[test]
fn fields_that_are_not_mapped_are_read_from_columns_with_their_names() {
    let map = ["context=context", "candidate=candidates"];
    for name in ["nested-none.parquet", "own.jsonl.gz"] {
        let (samples, _, unmapped) = read(name, &map);
        assert_eq!((samples, unmapped), (expected(), Vec::new()), "{name}");
    }
}

#[test]
fn packed_json_lines_are_told_by_their_content() {
    for name in ["own.jsonl.gz", "own.jsonl.zst"] {
        assert_eq!(read(name, &[]).0, expected(), "{name}");
    }
}

#[test]
fn parallel_lists_in_structs_are_mapped_by_paths() {
    let map = [
        "id=number", "context=input.text", "instruction=input.turns[0]", "candidate=texts", "score.fluency=flu",
        "score.coherence=coh", "reference=gold", "preference=label", "preference.0=1", "preference.1=2",
        "preference.2=tie",
    ];
    let (samples, _, unmapped) = read("lists.parquet", &map);
    assert_eq!(unmapped, ["names", "unused"]);
    let mut expected = expected();
    for (index, sample) in expected.iter_mut().enumerate() {
        // The table numbers samples, and candidates in a list are named by position.
        sample.id = index.to_string();
        let place = |id: &str| if id == "first" { "1".to_owned() } else { "2".to_owned() };
        sample.candidates.iter_mut().for_each(|candidate| candidate.id = place(&candidate.id));
        if let Some(probity_data::Preference::Candidate(id)) = &mut sample.preference {
            *id = place(id);
        }
    }
    assert_eq!(samples, expected);
}

#[test]
fn paths_lead_into_structs_in_lists() {
    let map = [
        "context=prompt", "candidate=responses[].text", "candidate-id=responses[].model",
        "score.quality=responses[].rating", "preference=label", "preference.0=1", "preference.1=2", "preference.2=tie",
    ];
    let (samples, _, unmapped) = read("train.parquet", &map);
    assert_eq!((samples.len(), unmapped), (2, Vec::new()));
    let second: Vec<_> = samples[1].candidates.iter().map(|c| (c.id.as_str(), c.scores["quality"])).collect();
    assert_eq!(second, [("small", 1.0), ("large", 5.0)]);
    assert_eq!(samples[1].preference, Some(probity_data::Preference::Candidate("large".into())));
}

const WIDE: [&str; 11] = [
    "id=id", "context=article", "instruction=prompt", "candidate.first=summary", "candidate.second=baseline",
    "score.first.fluency=flu_1", "score.second.fluency=flu_2", "score.second.coherence=coh_2", "reference=gold_1",
    "reference=gold_2", "preference=winner",
];

#[test]
fn a_row_a_sample_is_read_from_every_kind_of_table() {
    let kinds = [
        ("wide.parquet", DataFormat::Parquet),
        ("wide.csv", DataFormat::Csv),
        ("wide-semicolon.csv", DataFormat::Csv),
        ("wide.tsv", DataFormat::Tsv),
    ];
    for (name, format) in kinds {
        let (samples, found, _) = read(name, &WIDE);
        assert_eq!((samples, found), (expected(), format), "{name}");
    }
}

#[test]
fn rows_of_one_id_are_gathered_wherever_they_stand() {
    let map = [
        "id=doc", "context=article", "instruction=prompt", "candidate=text", "candidate-id=system",
        "score.fluency=fluency", "score.coherence=coherence", "reference=gold", "preference=winner",
    ];
    for name in ["long.csv.zst", "long.jsonl"] {
        assert_eq!(read(name, &map).0, expected(), "{name}");
    }
}
