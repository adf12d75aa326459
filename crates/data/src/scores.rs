//! Tables of metric scores.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::column::TableRow;
use crate::error::RecordUnit;
use crate::line_error::{LineError, excerpt};
use crate::open::file_name;
use crate::rows::SeenColumns;
use crate::source::{GoodRows, OpenRows, SampleSource};
use crate::values::{NumberError, kind, number, plain};
use crate::{DataError, LineProblems};

const EXAMPLE: &str = r#"{"item": "1", "candidate": "a", "metric": "bleu", "score": 0.31}"#;
const SCORES: GoodRows = GoodRows { json: EXAMPLE, columns: "item,candidate,metric,score" };

/// Columns that identify the subject of a row.
const KEYS: [&str; 3] = ["item", "candidate", "index"];

/// A score, possibly undefined.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRow {
    /// Position in the file, in units of [`ScoreTable::unit`].
    pub line: usize,
    /// Id of the sample.
    pub item: String,
    /// Id of the candidate; absent in a table without that column, where each item has one candidate.
    pub candidate: Option<String>,
    /// Name of the scorer: the row's `metric`, or the column.
    pub metric: Option<String>,
    /// The attribute that was scored, if known.
    pub attribute: Option<String>,
    /// Finite; absent if the metric is undefined.
    pub score: Option<f64>,
}

/// The rows of a score table.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreTable {
    /// File name for messages.
    pub file: String,
    /// Unit in which rows are numbered.
    pub unit: RecordUnit,
    /// In the order of the file, without duplicates of candidate, metric and attribute.
    pub rows: Vec<ScoreRow>,
    /// Human preferences by item, from a column `preference`.
    pub preferences: BTreeMap<String, String>,
    /// Columns without any number.
    pub passed_over: Vec<String>,
}

/// Whether the first row of a file has a column `item`, which makes it a score table instead of samples. False for an
/// unreadable file.
pub fn is_score_table(path: &Path) -> bool {
    let seen = SeenColumns::default();
    let opened = SampleSource::new(path).rows(&seen, SCORES);
    opened.is_ok_and(|mut opened| {
        opened.rows.next().is_some_and(|(_, row)| row.is_ok_and(|row| row.values().contains_key("item")))
    })
}

/// Reads a score table in any [`DataFormat`](crate::DataFormat), or from standard input for `-`.
///
/// A row has an `item`, usually a `candidate`, and either a `score` with its `metric` or `attribute`, or one column per
/// metric. Columns without any number, finite or not, are skipped if other columns have some. Null and empty cells are
/// undefined scores. Any other non-number and any repeated score is an error; a file with errors is rejected with all
/// of them.
pub fn read_scores(path: &Path) -> Result<ScoreTable, DataError> {
    let seen = SeenColumns::default();
    let opened = SampleSource::new(PathBuf::from(path)).rows(&seen, SCORES)?;
    let problems = LineProblems { unit: opened.unit, example: Some(EXAMPLE), ..LineProblems::new(file_name(path)) };
    let format = opened.format;
    let (table, problems) = ColumnReading { problems, ..ColumnReading::default() }.read(opened);
    if !problems.is_empty() {
        return Err(DataError::Problems(problems));
    }
    if table.rows.is_empty() {
        return Err(SCORES.missing(table.file, format));
    }
    Ok(table)
}

impl Default for LineProblems {
    fn default() -> Self {
        Self::new("")
    }
}

#[derive(Default)]
struct ColumnReading {
    rows: Vec<ScoreRow>,
    preferences: BTreeMap<String, String>,
    /// By column: cells that are not numbers, until the column is known to contain numbers.
    doubtful: BTreeMap<String, Vec<(usize, NumberError)>>,
    numeric: BTreeSet<String>,
    problems: LineProblems,
}

impl ColumnReading {
    fn read(mut self, opened: OpenRows) -> (ScoreTable, LineProblems) {
        for (line, row) in opened.rows {
            if let Err(error) = row.and_then(|row| self.row(line, &row)) {
                self.problems.push(line, error);
            }
        }
        // If the table has no other content, the non-numeric cells are the errors.
        let holds_something = !self.preferences.is_empty() || self.rows.iter().any(|row| row.score.is_some());
        let mut passed_over = Vec::new();
        for (column, cells) in std::mem::take(&mut self.doubtful) {
            if holds_something && !self.numeric.contains(&column) {
                passed_over.push(column);
                continue;
            }
            for (line, why) in cells {
                self.problems.push(line, LineError::cell(&column, "score", why.to_string()).with_hint_of(&why));
            }
        }
        self.rows.retain(|row| row.metric.as_ref().is_none_or(|metric| !passed_over.contains(metric)));
        self.refuse_repeated();
        let Self { rows, preferences, problems, .. } = self;
        (ScoreTable { file: problems.file.clone(), unit: problems.unit, rows, preferences, passed_over }, problems)
    }

    fn row(&mut self, line: usize, row: &TableRow) -> Result<(), LineError> {
        let row = row.values();
        let text = |name: &str| match row.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => plain(value)
                .map(|text| Some(text).filter(|text| !text.is_empty()))
                .ok_or_else(|| LineError::cell(name, "", format!("expected a name, found {}", kind(value)))),
        };
        let missing = || {
            LineError::content("", "missing `item`").with_hint(
                "use the columns item, candidate, metric and score, or item, candidate and one column per metric",
            )
        };
        let item = text("item")?.ok_or_else(missing)?;
        let candidate = text("candidate")?;
        if let Some(preference) = text("preference")? {
            // The preference is repeated in each row of its item, so rows can contradict each other.
            let known = self.preferences.entry(item.clone()).or_insert_with(|| preference.clone());
            if *known != preference {
                let why =
                    format!("`{}`, but an earlier row of the item has `{}`", excerpt(&preference), excerpt(known));
                return Err(LineError::cell("preference", "", why));
            }
        }
        let base =
            ScoreRow { line, item, candidate, metric: text("metric")?, attribute: text("attribute")?, score: None };
        if let Some(score) = row.get("score") {
            let score =
                number(score).map_err(|why| LineError::cell("score", "", why.to_string()).with_hint_of(&why))?;
            self.rows.push(ScoreRow { score, ..base });
            return Ok(());
        }
        for (column, value) in row.iter().filter(|(name, _)| !KEYS.contains(&name.as_str()) && *name != "preference") {
            let score = match number(value) {
                Ok(score) => score,
                Err(why) => {
                    // `nan` and `inf` make a column numeric. Otherwise a metric with only NaN would be skipped as text.
                    if value.as_str().is_some_and(|text| text.trim().parse::<f64>().is_ok()) {
                        self.numeric.insert(column.clone());
                    }
                    self.doubtful.entry(column.clone()).or_default().push((line, why));
                    None
                }
            };
            if score.is_some() {
                self.numeric.insert(column.clone());
            }
            self.rows.push(ScoreRow { metric: Some(column.clone()), score, ..base.clone() });
        }
        Ok(())
    }

    /// Reports the second of two scores of one candidate and metric.
    fn refuse_repeated(&mut self) {
        let mut first: BTreeMap<[&str; 4], usize> = BTreeMap::new();
        let mut repeated = Vec::new();
        for row in &self.rows {
            let [candidate, metric, attribute] =
                [&row.candidate, &row.metric, &row.attribute].map(|value| value.as_deref().unwrap_or(""));
            let key = [row.item.as_str(), candidate, metric, attribute];
            if let Some(line) = first.get(&key) {
                let what = [metric, attribute].into_iter().find(|name| !name.is_empty()).unwrap_or("score");
                let candidate =
                    row.candidate.as_ref().map(|name| format!(", candidate `{}`", excerpt(name))).unwrap_or_default();
                let why = format!(
                    "duplicate `{}` of item `{}`{candidate}, first on {} {line}",
                    excerpt(what),
                    excerpt(&row.item),
                    self.problems.unit
                );
                let hint = "keep one score per candidate and metric; pass several runs with several --scores";
                repeated.push((row.line, LineError::content("", why).with_hint(hint)));
            } else {
                first.insert(key, row.line);
            }
        }
        for (line, error) in repeated {
            self.problems.push(line, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &str) -> Result<ScoreTable, String> {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        let told = |e: DataError| format!("{e}; {}", crate::error::hint_of(&e));
        read_scores(&path).map_err(|e| told(e).replace(&folder.path().display().to_string(), ""))
    }

    fn row(line: usize, candidate: &str, metric: &str, score: Option<f64>) -> ScoreRow {
        ScoreRow {
            line,
            item: "1".into(),
            candidate: Some(candidate.into()),
            metric: Some(metric.into()),
            attribute: None,
            score,
        }
    }

    #[test]
    fn long_and_wide_tables_say_the_same() {
        let long = r#"{"item":"1","candidate":"a","metric":"bleu","score":0.5}
{"item":"1","candidate":"a","metric":"ter","score":null}
"#;
        let wide = "item,candidate,note,bleu,ter\n1,a,fine,0.5,\n1,b,,,2\n";
        let long = read("s.jsonl", long).expect("read");
        assert_eq!(long.rows, [row(1, "a", "bleu", Some(0.5)), row(2, "a", "ter", None)]);
        let wide = read("s.csv", wide).expect("read");
        let expected = [
            row(2, "a", "bleu", Some(0.5)),
            row(2, "a", "ter", None),
            row(3, "b", "bleu", None),
            row(3, "b", "ter", Some(2.0)),
        ];
        assert_eq!((wide.rows.as_slice(), wide.passed_over.as_slice()), (&expected[..], &["note".to_owned()][..]));
    }

    #[test]
    fn attributes_numbers_as_names_and_missing_candidates_are_kept() {
        let table = read("s.jsonl", "{\"item\": 7, \"attribute\": \"tone\", \"score\": 1, \"preference\": \"a\"}\n")
            .expect("read");
        let only = &table.rows[0];
        assert_eq!(
            (only.item.as_str(), &only.candidate, only.attribute.as_deref(), only.score),
            ("7", &None, Some("tone"), Some(1.0))
        );
        assert_eq!(table.preferences["7"], "a");
    }

    #[test]
    fn what_is_no_number_is_told_with_line_and_column() {
        let told = read("s.csv", "item,candidate,bleu\n1,a,0.5\n1,b,nan\n1,c,much\n").expect_err("refused");
        for part in [
            "2 problems in",
            "lines 3, 4: column `bleu` (score): `nan` is not a finite number (and similar)",
            "leave the cell empty",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        // A metric with only such values, and a table without any number.
        let told = read("s.csv", "item,candidate,bleu,ter\n1,a,0.5,NaN\n").expect_err("refused");
        assert!(told.contains("column `ter` (score): `NaN` is not a finite number"), "{told}");
        let told = read("s.csv", "item,candidate,bleu\n1,a,much\n").expect_err("refused");
        assert!(told.contains("column `bleu` (score): `much` is not a finite number"), "{told}");
        let told = read("s.jsonl", "{\"item\":\"1\",\"metric\":\"m\",\"score\":NaN}\n").expect_err("refused");
        assert!(told.contains("line 1 of"), "{told}");
        let told = read("s.jsonl", "{\"id\":\"1\",\"score\":1}\n").expect_err("refused");
        assert!(told.contains("missing `item`"), "{told}");
    }

    #[test]
    fn a_score_twice_is_a_problem_that_names_both_lines() {
        let told = read("s.csv", "item,candidate,bleu\n1,a,0.5\n2,a,0.5\n1,a,0.7\n").expect_err("refused");
        assert!(
            told.contains("line 4 of") && told.contains("duplicate `bleu` of item `1`, candidate `a`, first on line 2"),
            "{told}"
        );
    }

    #[test]
    fn a_key_twice_is_a_problem_of_its_line() {
        let told =
            read("s.jsonl", "{\"item\":\"1\",\"m\":1}\n{\"item\":\"2\",\"m\":1,\"m\":2}\n").expect_err("refused");
        assert!(told.contains("line 2 of /s.jsonl: duplicate key `m`"), "{told}");
    }

    #[test]
    fn a_table_of_samples_is_none_of_scores() {
        let folder = tempfile::tempdir().expect("folder");
        let is = |content: &str| {
            let path = folder.path().join("x.jsonl");
            std::fs::write(&path, content).expect("written");
            is_score_table(&path)
        };
        assert!(is("{\"item\":\"1\",\"score\":1}\n"));
        assert!(!is("{\"id\":\"1\",\"context\":\"\",\"candidates\":[]}\n") && !is("") && !is("{\n"));
        assert!(!is_score_table(Path::new("nowhere.csv")));
    }
}
