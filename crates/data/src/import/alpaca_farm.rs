//! `AlpacaFarm`'s human preferences (Dubois et al., 2023), with one or several annotators per pair. JSON lines or one
//! array.
//!
//! Rows have `instruction`, `input` (may be empty), `output_1`, `output_2` and `preference` (1 or 2; 1.5, as in
//! cross-annotations, for a tie). Rows of one instruction with the same two outputs become one sample with the majority
//! preference; equal votes are a tie.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Importer, Malformed, parse_rows};
use crate::{Candidate, Preference, Sample};

pub(super) const IMPORTER: Importer =
    Importer { name: "alpaca-farm", summary: "AlpacaFarm: instructions, two outputs, human preferences", convert };

#[derive(Deserialize)]
struct AlpacaFarmRow {
    instruction: String,
    #[serde(default)]
    input: String,
    output_1: String,
    output_2: String,
    preference: f64,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let mut samples: Vec<(Sample, f64)> = Vec::new();
    let mut positions = BTreeMap::new();
    for (place, row) in parse_rows::<AlpacaFarmRow>(bytes)?.into_iter().enumerate() {
        if !(1.0..=2.0).contains(&row.preference) {
            return Err(Malformed {
                path: format!("[{place}].preference"),
                why: format!("{} is not 1, 2 or between", row.preference),
            });
        }
        let key = (row.instruction.clone(), row.input.clone(), row.output_1.clone(), row.output_2.clone());
        let position = *positions.entry(key).or_insert(samples.len());
        if position == samples.len() {
            let candidates = ["1", "2"].into_iter().zip([row.output_1, row.output_2]);
            let candidate = |(id, text): (&str, String)| Candidate {
                id: id.to_owned(),
                text: text.into(),
                scores: BTreeMap::new(),
            };
            let sample = Sample {
                id: format!("pair-{:05}", position + 1),
                context: row.input.into(),
                instruction: Some(row.instruction.into()).filter(|text: &crate::SharedText| !text.is_empty()),
                texts: BTreeMap::new(),
                candidates: candidates.map(candidate).collect(),
                references: Vec::new(),
                preference: None,
            };
            samples.push((sample, 0.0));
        }
        // Votes of 1, 1.5 and 2 have exact sums, so equal votes are exactly 0.
        samples[position].1 += row.preference - 1.5;
    }
    let preferred = |(sample, balance): (Sample, f64)| {
        let preference = match balance {
            balance if balance < 0.0 => Preference::Candidate("1".to_owned()),
            balance if balance > 0.0 => Preference::Candidate("2".to_owned()),
            _ => Preference::Tie,
        };
        Sample { preference: Some(preference), ..sample }
    };
    Ok(samples.into_iter().map(preferred).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::refusal;
    use super::*;

    #[test]
    fn several_judgements_of_a_pair_become_one_preference() {
        let row = |instruction: &str, preference: f64| {
            format!(
                r#"{{"instruction": "{instruction}", "input": "", "output_1": "a", "output_2": "b", "preference": {preference}, "annotator": "x"}}"#
            )
        };
        let rows =
            [row("one", 1.0), row("two", 2.0), row("one", 1.0), row("one", 2.0), row("two", 1.0), row("three", 1.5)];
        let samples = IMPORTER.import_bytes(rows.join("\n").as_bytes(), "f.json").expect("importable");
        let found: Vec<_> = samples.iter().map(|s| (s.instruction.as_deref(), s.preference.clone())).collect();
        let first = Some(Preference::Candidate("1".into()));
        assert_eq!(
            found,
            [(Some("one"), first), (Some("two"), Some(Preference::Tie)), (Some("three"), Some(Preference::Tie))]
        );
        assert!(
            refusal("alpaca-farm", &format!("[{}]", row("one", 3.0)))
                .contains("at `[0].preference`: 3 is not 1, 2 or between")
        );
    }
}
