//! Samples as JSON lines.

use std::io::Write;

use crate::read::Record;
use crate::{DataError, LineError, Sample};

/// Writes each sample as one line, such that reading returns the same samples.
///
/// Validates all samples first, including ids: on an error nothing is written.
pub fn write_samples(mut writer: impl Write, samples: &[Sample]) -> Result<(), DataError> {
    // Before the first byte: a file that ends midway looks complete.
    check_all(samples).map_err(|(index, error)| DataError::Unwritable {
        index,
        id: crate::line_error::excerpt(&samples[index].id),
        error: Box::new(error),
    })?;
    for sample in samples {
        serde_json::to_writer(&mut writer, sample).map_err(|e| DataError::Write(e.into()))?;
        writer.write_all(b"\n").map_err(DataError::Write)?;
    }
    writer.flush().map_err(DataError::Write)
}

/// The first sample (by position) that a reader would reject.
pub(crate) fn check_all(samples: &[Sample]) -> Result<(), (usize, LineError)> {
    let mut seen = std::collections::BTreeMap::new();
    for (index, sample) in samples.iter().enumerate() {
        if sample.id.is_empty() {
            return Err((index, LineError::content("id", "empty")));
        }
        if let Some(error) = Record::check(sample).into_iter().next() {
            return Err((index, error));
        }
        if let Some(first) = seen.insert(sample.id.as_str(), index) {
            return Err((index, LineError::content("id", format!("same as sample {first}"))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{Candidate, Preference};

    fn scores() -> impl Strategy<Value = BTreeMap<String, f64>> {
        prop::collection::btree_map(".{1,8}", any::<f64>().prop_filter("a score", |x| x.abs() <= 1e100), 0..3)
    }

    fn sample() -> impl Strategy<Value = Sample> {
        let candidates = prop::collection::vec((".{0,20}", scores()), 1..5);
        let references = prop::collection::vec(any::<String>(), 0..3);
        (
            any::<String>(),
            any::<String>(),
            prop::option::of(any::<String>()),
            prop::collection::btree_map(".{1,8}", any::<String>(), 0..3),
            candidates,
            references,
            any::<Option<u8>>(),
        )
            .prop_map(|(id, context, instruction, texts, candidates, references, preferred)| {
                let named = candidates.into_iter().enumerate();
                let candidates: Vec<_> = named
                    .map(|(i, (text, scores))| Candidate { id: format!("{i}{text}"), text: text.into(), scores })
                    .collect();
                let preference = preferred.map(|p| match usize::from(p) % (candidates.len() + 1) {
                    0 => Preference::Tie,
                    i => Preference::Candidate(candidates[i - 1].id.clone()),
                });
                Sample {
                    id,
                    context: context.into(),
                    instruction: instruction.map(Into::into),
                    texts: texts.into_iter().map(|(name, text)| (name, text.into())).collect(),
                    candidates,
                    references: references.into_iter().map(Into::into).collect(),
                    preference,
                }
            })
    }

    fn one(id: &str) -> Sample {
        let candidates = vec![Candidate { id: "a".into(), text: "x".into(), scores: BTreeMap::new() }];
        Sample {
            id: id.into(),
            context: String::new().into(),
            instruction: None,
            texts: BTreeMap::new(),
            candidates,
            references: vec![],
            preference: None,
        }
    }

    #[test]
    fn the_form_is_the_documented_one() {
        let mut sample = one("s");
        sample.candidates[0].scores.insert("fluency".into(), 4.5);
        sample.preference = Some(Preference::Tie);
        let mut out = Vec::new();
        write_samples(&mut out, &[sample]).expect("written");
        let expected = r#"{"id":"s","context":"","candidates":[{"id":"a","text":"x","scores":{"fluency":4.5}}],"preference":"tie"}"#;
        assert_eq!(String::from_utf8(out).expect("UTF-8"), format!("{expected}\n"));
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let mut infinite = one("s");
        infinite.candidates[0].scores.insert("fluency".into(), f64::INFINITY);
        for samples in [vec![one("a"), one("a")], vec![one("a"), infinite], vec![one("")]] {
            let mut out = Vec::new();
            assert!(matches!(write_samples(&mut out, &samples), Err(DataError::Unwritable { .. })));
            assert!(out.is_empty());
        }
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut small = [0_u8; 10];
        assert!(matches!(write_samples(&mut small[..], &[one("a")]), Err(DataError::Write(_))));
    }

    proptest! {
        #[test]
        fn reading_what_was_written_gives_the_same(samples in prop::collection::vec(sample(), 1..5)) {
            let mut samples = samples;
            for (i, sample) in samples.iter_mut().enumerate() {
                sample.id.insert_str(0, &i.to_string());
            }
            let mut out = Vec::new();
            write_samples(&mut out, &samples).expect("valid by construction");
            prop_assert_eq!(out.split(|&b| b == b'\n').count(), samples.len() + 1);
            let report = crate::read_from::<Sample>(&out[..], "memory".into(), None).expect("readable");
            prop_assert!(report.problems.is_empty(), "{}", report.problems);
            prop_assert_eq!(report.records.into_iter().map(|(_, s)| s).collect::<Vec<_>>(), samples);
        }

        #[test]
        fn a_damaged_line_is_a_problem_or_still_a_valid_sample(sample in sample(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut out = Vec::new();
            write_samples(&mut out, &[Sample { id: "s".into(), ..sample }]).expect("valid by construction");
            let at = at.index(out.len());
            out[at] = byte;
            if let Ok(report) = crate::read_from::<Sample>(&out[..], "memory".into(), None) {
                prop_assert!(report.records.iter().all(|(_, s)| !s.id.is_empty() && s.check().is_empty()));
                prop_assert!(!report.records.is_empty() || !report.problems.is_empty());
            }
        }

        #[test]
        fn arbitrary_bytes_give_samples_or_problems(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // Either result is fine, but it must not panic.
            let _ = crate::read_from::<Sample>(&bytes[..], "memory".into(), None).map(|r| r.problems.to_string());
        }
    }
}
