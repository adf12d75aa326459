//! `--attribute WORD=COLUMN`: the word for the prompt, and the name of its gold scores.

use std::borrow::Cow;

use probity_data::Sample;
use probity_options::GivenOptions;
use serde_json::Value;

use crate::error::UnknownGold;
use crate::gold;

/// The option that names attributes.
const ATTRIBUTE: &str = "attribute";

/// Attributes whose gold scores have another name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoldColumns {
    /// Word in the prompt and name in the data.
    pairs: Vec<(String, String)>,
}

impl GoldColumns {
    /// Removes the columns from the options, so that a method receives only the words.
    pub fn split(given: &GivenOptions) -> (GivenOptions, Self) {
        let (mut given, mut columns) = (given.clone(), Self::default());
        for text in given.get_mut(ATTRIBUTE).map_or_else(Vec::new, texts) {
            if let Some((word, column)) =
                text.split_once('=').filter(|(word, column)| !word.is_empty() && !column.is_empty())
            {
                columns.pairs.push((word.to_owned(), column.to_owned()));
                *text = word.to_owned();
            }
        }
        (given, columns)
    }

    /// Restores the options for the manifest.
    pub fn joined(&self, mut options: Value) -> Value {
        for text in options.get_mut(ATTRIBUTE).map_or_else(Vec::new, texts) {
            if let Some((word, column)) = self.pairs.iter().find(|(word, _)| word == text) {
                *text = format!("{word}={column}");
            }
        }
        options
    }

    /// The samples with these gold scores renamed to the words.
    pub fn renamed<'s>(&self, samples: &'s [Sample], no_gold: bool) -> Result<Cow<'s, [Sample]>, UnknownGold> {
        if self.pairs.is_empty() {
            return Ok(Cow::Borrowed(samples));
        }
        let columns: Vec<String> = self.pairs.iter().map(|(_, column)| column.clone()).collect();
        if !no_gold {
            gold::refuse_unknown(samples, &columns, "name a gold score behind `=`, or leave `=` and the name out")?;
        }
        let mut samples = samples.to_vec();
        for candidate in samples.iter_mut().flat_map(|sample| &mut sample.candidates) {
            let given = candidate.scores.clone();
            candidate.scores.retain(|name, _| self.pairs.iter().all(|(_, column)| column != name));
            for (word, column) in &self.pairs {
                match given.get(column) {
                    Some(score) => candidate.scores.insert(word.clone(), *score),
                    None => candidate.scores.remove(word),
                };
            }
        }
        Ok(Cow::Owned(samples))
    }
}

/// The texts of an option with one or several values.
fn texts(value: &mut Value) -> Vec<&mut String> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => {
            list.iter_mut().filter_map(|one| if let Value::String(text) = one { Some(text) } else { None }).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::sample;

    #[test]
    fn a_word_is_judged_and_compared_with_the_column_that_it_names() {
        let given = json!({"attribute": ["informativeness=litepyramid_recall", "fluency"], "seed": 3});
        let (bare, columns) = GoldColumns::split(given.as_object().expect("options"));
        assert_eq!(bare["attribute"], json!(["informativeness", "fluency"]));
        assert_eq!(columns.joined(Value::Object(bare)), given);
        let mut samples = [sample("a", &[1.0, 2.0])];
        for (candidate, recall) in samples[0].candidates.iter_mut().zip([0.25, 0.75]) {
            candidate.scores = [("litepyramid_recall".to_owned(), recall), ("fluency".to_owned(), 1.0)].into();
        }
        let renamed = columns.renamed(&samples, false).expect("the column is there");
        assert_eq!(
            renamed[0].candidates[1].scores,
            [("fluency".to_owned(), 1.0), ("informativeness".to_owned(), 0.75)].into()
        );
        let (_, absent) = GoldColumns::split(json!({"attribute": "a=litepyramid"}).as_object().expect("options"));
        assert!(absent.renamed(&samples, false).is_err() && absent.renamed(&samples, true).is_ok());
    }

    #[test]
    fn two_words_may_be_compared_with_one_column_and_names_may_change_places() {
        let mut samples = [sample("a", &[1.0])];
        samples[0].candidates[0].scores = [("x".to_owned(), 1.0), ("y".to_owned(), 2.0)].into();
        let renamed = |given: Value| {
            let (_, columns) = GoldColumns::split(given.as_object().expect("options"));
            columns.renamed(&samples, false).expect("there")[0].candidates[0].scores.clone()
        };
        assert_eq!(
            renamed(json!({"attribute": ["x=y", "y=x"]})),
            [("x".to_owned(), 2.0), ("y".to_owned(), 1.0)].into()
        );
        assert_eq!(
            renamed(json!({"attribute": ["a=x", "b=x"]})),
            [("a".to_owned(), 1.0), ("b".to_owned(), 1.0), ("y".to_owned(), 2.0)].into()
        );
    }
}
