//! Arbitrary samples survive a round trip through tables, and damaged tables never cause a panic.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::PathBuf;

use probity_data::{Candidate, DataFormat, Field, MapEntry, Mapping, Preference, Sample, SampleSource, SharedText};
use proptest::prelude::*;

type Texts = (String, [String; 2], Option<String>, Option<String>);

/// A sample with two candidates. Optional texts are not empty, which would mean absent in a table.
fn sample(
    index: usize,
    ids: &[String; 2],
    (context, texts, instruction, reference): Texts,
    scores: [Option<f64>; 2],
    preferred: Option<usize>,
) -> Sample {
    let candidate = |((id, text), score): ((&String, String), Option<f64>)| Candidate {
        id: id.clone(),
        text: text.into(),
        scores: score.map(|score| ("f.g".to_owned(), score)).into_iter().collect::<BTreeMap<_, _>>(),
    };
    Sample {
        id: format!("s{index}"),
        context: context.into(),
        instruction: instruction.map(Into::into),
        texts: BTreeMap::new(),
        candidates: ids.iter().zip(texts).zip(scores).map(candidate).collect(),
        references: reference.into_iter().map(Into::into).collect(),
        preference: preferred.map(|side| ids.get(side).map_or(Preference::Tie, |id| Preference::Candidate(id.clone()))),
    }
}

/// Samples with the same candidate ids, so that candidates can be columns.
fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let score = || prop::option::of(any::<f64>().prop_filter("a score", |x| x.abs() <= 1e100));
    let texts =
        (any::<String>(), [any::<String>(), any::<String>()], prop::option::of(".{1,9}"), prop::option::of(".{1,9}"));
    let rows = prop::collection::vec((texts, [score(), score()], prop::option::of(0..3_usize)), 1..6);
    ([".{0,6}", ".{0,6}"], rows).prop_map(|([one, two], rows)| {
        let ids = [format!("1{one}"), format!("2{two}")];
        let rows = rows.into_iter().enumerate();
        rows.map(|(index, (texts, scores, preferred))| sample(index, &ids, texts, scores, preferred)).collect()
    })
}

fn preference(sample: &Sample) -> String {
    match &sample.preference {
        Some(Preference::Candidate(id)) => id.clone(),
        Some(Preference::Tie) => "Tie".into(),
        None => String::new(),
    }
}

fn table(rows: impl Iterator<Item = Vec<String>>, delimiter: u8) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    rows.for_each(|row| writer.write_record(row).expect("written"));
    writer.into_inner().expect("written")
}

fn cells(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

fn score(candidate: &Candidate) -> String {
    candidate.scores.get("f.g").map(f64::to_string).unwrap_or_default()
}

fn read(bytes: Vec<u8>, format: DataFormat, map: &[(Field, &str)]) -> Result<Vec<Sample>, String> {
    let entry = |(field, column): &(Field, &str)| MapEntry {
        field: field.clone(),
        constant: false,
        column: (*column).to_owned(),
    };
    let map = Mapping::new(map.iter().map(entry)).expect("a mapping");
    let source = SampleSource { format: Some(format), map, ..SampleSource::new("memory") };
    let mut file = source.open_from(Cursor::new(bytes)).map_err(|e| e.to_string())?;
    let samples = file.records.by_ref().map(|(_, sample)| sample).collect();
    let problems = file.records.into_problems();
    if problems.is_empty() { Ok(samples) } else { Err(problems.to_string()) }
}

proptest! {
    #[test]
    fn a_row_a_sample_comes_back(samples in samples(), tabs in any::<bool>()) {
        let head = cells(&["id", "context", "instruction", "reference", "preference", "t 0", "t 1", "f 0", "f 1"]);
        let row = |sample: &Sample| {
            let [one, two] = &sample.candidates[..] else { unreachable!("two candidates") };
            let optional = |text: Option<&SharedText>| text.map(ToString::to_string).unwrap_or_default();
            vec![
                sample.id.clone(), sample.context.to_string(), optional(sample.instruction.as_ref()), optional(sample.references.first()),
                preference(sample), one.text.to_string(), two.text.to_string(), score(one), score(two),
            ]
        };
        let (format, delimiter) = if tabs { (DataFormat::Tsv, b'\t') } else { (DataFormat::Csv, b',') };
        let bytes = table(std::iter::once(head).chain(samples.iter().map(row)), delimiter);
        let id = |place: usize| samples[0].candidates[place].id.clone();
        let map = [
            (Field::Id, "id"), (Field::Context, "context"), (Field::Instruction, "instruction"), (Field::Reference, "reference"),
            (Field::Preference, "preference"), (Field::Candidate(Some(id(0))), "t \
                0"), (Field::Candidate(Some(id(1))), "t 1"),
            (Field::Score(format!("{}.f.g", id(0))), "f 0"), (Field::Score(format!("{}.f.g", id(1))), "f 1"),
        ];
        prop_assert_eq!(read(bytes, format, &map), Ok(samples));
    }

    #[test]
    fn a_row_a_candidate_comes_back_wherever_its_rows_stand(samples in samples()) {
        let head = cells(&["doc", "context", "instruction", "gold", "winner", "system", "text", "f.g"]);
        let row = |place: usize, sample: &Sample| {
            let candidate = &sample.candidates[place];
            vec![
                sample.id.clone(), sample.context.to_string(), sample.instruction.clone().unwrap_or_default().to_string(),
                sample.references.first().cloned().unwrap_or_default().to_string(), preference(sample), candidate.id.clone(), candidate.text.to_string(),
                score(candidate),
            ]
        };
        let rows = (0..2).flat_map(|place| samples.iter().map(move |sample| row(place, sample)));
        let bytes = table(std::iter::once(head).chain(rows), b',');
        let map = [
            (Field::Id, "doc"), (Field::Context, "context"), (Field::Instruction, "instruction"), (Field::Reference, "gold"),
            (Field::Preference, "winner"), (Field::CandidateId, "system"), (Field::Candidate(None), "text"), (Field::Score("f.g".into()), "f.g"),
        ];
        prop_assert_eq!(read(bytes, DataFormat::Csv, &map), Ok(samples));
    }

    #[test]
    fn a_damaged_table_gives_samples_or_problems(
        name in prop::sample::select(vec!["nested-snappy.parquet", "nested-plain-v2.parquet", "lists.parquet", "wide.csv", "long.csv.zst", "own.jsonl.gz"]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../tests/goldens/tables", name].iter().collect();
        let mut bytes = std::fs::read(&path).expect("a golden");
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len())));
        for map in ["", "input.text", "article"] {
            let entries = ["context", "candidate"].into_iter().filter(|_| !map.is_empty()).map(|field| format!("{field}={map}").parse());
            let map = Mapping::new(entries.map(|entry| entry.expect("an entry"))).expect("a mapping");
            let Ok(mut file) = (SampleSource { map, ..SampleSource::new(&path) }).open_from(Cursor::new(bytes.clone())) else { continue };
            // A damaged count can validly claim many rows.
            let good = file.records.by_ref().take(1000).all(|(line, sample)| line > 0 && sample.check().is_empty());
            prop_assert!(good);
        }
    }
}
