//! Samples in the page: blocks of compressed JSON, decoded one at a time by the page's script, and an index of all
//! samples.
//!
//! A block is gzip in base64, in a script element whose type browsers do not run. Texts and details are in separate
//! blocks, so that a search decodes only texts. Samples are streamed: memory is bounded by one block.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use probity_analysis::measures::{Measure, MeasureKind};
use probity_data::Sample;
use probity_lm::Prompt;
use probity_metrics::Direction;
use probity_stats::order;
use probity_store::{AnsweredRequest, Answers, AnyAnswer, sample_of};
use serde_json::{Map, Value, json};

use crate::ReportError;
use crate::report::{ReportPart, RunReport};
use crate::rows::BELONGS_TO;
use crate::run::TableKind;
use crate::text::shortened;

/// Limits after which a block is closed.
const BLOCK_SAMPLES: usize = 100;
const BLOCK_BYTES: usize = 1 << 20;

/// Maximum number of prompts in the page, divided between its samples, and minimum for each sample.
const PROMPTS: usize = 100_000;
const PROMPTS_AT_LEAST: usize = 16;

/// Number of characters of a sample in the list.
const START: usize = 140;

/// Number of samples of each run in the page.
pub(crate) fn held(report: &RunReport) -> Vec<usize> {
    let share = report.options.samples.div_ceil(report.parts.len().max(1));
    report.parts.iter().map(|part| part.facts.samples.len().min(share)).collect()
}

/// Writes all blocks, and the index last.
pub(crate) fn write(report: &RunReport, out: &mut dyn Write) -> Result<(), ReportError> {
    let held = held(report);
    // With few samples, all prompts of a sample fit; with many, only some.
    let prompts = (PROMPTS / held.iter().sum::<usize>().max(1)).max(PROMPTS_AT_LEAST);
    let mut blocks = Blocks { out, texts: Vec::new(), details: Vec::new(), samples: 0, first: Vec::new() };
    let mut index = Index::default();
    for (number, part) in report.parts.iter().enumerate() {
        let mut reader = RunReader::open(part)?;
        let agreement = SampleAgreement::new(part);
        for sample in 0..held[number] as u32 {
            let (text, detail) = reader.sample(sample, prompts)?;
            index.push(number, part, sample, (&text, &detail), &agreement);
            blocks.push(&text, &detail)?;
        }
    }
    // The index comes last, because it needs the first sample of each block.
    blocks.flush()?;
    let Blocks { out, first, .. } = blocks;
    let names: Vec<&str> = report.parts.iter().map(|part| part.run.name()).collect();
    let lists =
        |names: &crate::names::Names| (0..names.len() as u32).map(|n| names.text(n).to_owned()).collect::<Vec<_>>();
    let index = json!({
        "noun": report.noun(),
        "runs": names,
        "outcomes": report.parts.iter().map(|part| lists(&part.facts.outcomes)).collect::<Vec<_>>(),
        "attributes": report.parts.iter().map(|part| lists(&part.facts.attributes)).collect::<Vec<_>>(),
        "first": first,
        "columns": index.columns,
    });
    block(out, "index", index.to_string().as_bytes())?;
    Ok(())
}

/// Writes one block. Base64 contains no character that could end the element.
fn block(out: &mut dyn Write, id: &str, json: &[u8]) -> io::Result<()> {
    // Browsers can decompress gzip without a library.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(6));
    gzip.write_all(json)?;
    let packed = STANDARD.encode(gzip.finish()?);
    writeln!(out, "<script type=\"application/gzip\" id=\"{id}\">{packed}</script>")
}

/// Samples buffered until their block is full.
struct Blocks<'a> {
    out: &'a mut dyn Write,
    texts: Vec<u8>,
    details: Vec<u8>,
    samples: usize,
    /// The first sample of each block.
    first: Vec<usize>,
}

impl Blocks<'_> {
    fn push(&mut self, text: &Value, detail: &Value) -> io::Result<()> {
        let opened = self.texts.is_empty();
        if opened {
            self.first.push(self.samples);
        }
        for (buffer, value) in [(&mut self.texts, text), (&mut self.details, detail)] {
            buffer.push(if opened { b'[' } else { b',' });
            serde_json::to_writer(&mut *buffer, value)?;
        }
        self.samples += 1;
        let full = self.samples - self.first.last().copied().unwrap_or(0) >= BLOCK_SAMPLES;
        if full || self.texts.len() + self.details.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.texts.is_empty() {
            return Ok(());
        }
        let number = self.first.len() - 1;
        for (name, buffer) in [("t", &mut self.texts), ("d", &mut self.details)] {
            buffer.push(b']');
            block(self.out, &format!("{name}{number}"), buffer)?;
            buffer.clear();
        }
        Ok(())
    }
}

/// Agreement of the scores with gold by sample.
struct SampleAgreement {
    /// Sum and number of Spearman coefficients over attributes.
    rho: BTreeMap<u32, (f64, f64)>,
    preference: BTreeMap<u32, (f64, f64)>,
    /// The candidate with the highest score, of the first attribute; none if the highest score is shared.
    winners: BTreeMap<u32, (u32, f64)>,
}

impl SampleAgreement {
    fn new(part: &ReportPart) -> Self {
        let sums = |kind: MeasureKind| {
            let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
            let whole = part.attributes.iter().filter(|attribute| !attribute.is_part());
            for (sample, value) in whole.filter_map(|a| a.found.by_kind.get(&kind)).flat_map(Measure::by_sample) {
                let sum = sums.entry(sample).or_default();
                *sum = (sum.0 + value, sum.1 + 1.0);
            }
            sums
        };
        Self { rho: sums(MeasureKind::Spearman), preference: sums(MeasureKind::Preference), winners: winners(part) }
    }
}

/// The candidate with the highest score by sample, where a sample has several.
fn winners(part: &ReportPart) -> BTreeMap<u32, (u32, f64)> {
    let mut winners = BTreeMap::new();
    let first = part.attributes.iter().find(|attribute| !attribute.is_agreement);
    for scores in first.into_iter().flat_map(|attribute| attribute.scores.chunk_by(|a, b| a.sample == b.sample)) {
        let direction = first.map_or(Direction::HigherIsBetter, |attribute| attribute.direction);
        let best = scores.iter().max_by(|a, b| direction.upwards(a.score).total_cmp(&direction.upwards(b.score)));
        let Some(best) = best.filter(|_| scores.len() > 1) else { continue };
        if scores.iter().filter(|one| order(one.score, best.score).is_eq()).count() == 1 {
            winners.insert(best.sample, (best.candidate, best.score));
        }
    }
    winners
}

/// List of samples by column.
#[derive(Default)]
struct Index {
    columns: BTreeMap<&'static str, Vec<Value>>,
}

impl Index {
    fn push(
        &mut self,
        run: usize,
        part: &ReportPart,
        sample: u32,
        (text, detail): (&Value, &Value),
        agreement: &SampleAgreement,
    ) {
        let facts = &part.facts.samples[sample as usize];
        let candidate = |id: u32| part.facts.candidates.text(id);
        let mean = |sums: &BTreeMap<u32, (f64, f64)>| sums.get(&sample).map(|(sum, weight)| short(sum / weight));
        let start = text["c"]
            .as_str()
            .filter(|c| !c.trim().is_empty())
            .or_else(|| text["k"][0][1].as_str())
            .or_else(|| first_text(detail))
            .unwrap_or_default();
        // Count rows if the run has no stored answers.
        let asked = detail["asked"].as_u64().filter(|asked| *asked > 0);
        let answers = asked.unwrap_or_else(|| facts.judgements.into());
        let cells = [
            ("run", json!(run)),
            ("id", json!(part.facts.ids.text(sample))),
            ("start", json!(shortened(start.trim(), START))),
            ("outcomes", json!(facts.outcomes)),
            ("attributes", json!(facts.attributes)),
            ("answers", json!(answers)),
            ("mass", json!(facts.least_mass.map(short))),
            ("gap", json!((facts.gaps > 0).then(|| short(facts.gap_sum / f64::from(facts.gaps))))),
            ("best", json!(facts.best.map(short))),
            ("winner", json!(agreement.winners.get(&sample).map(|(id, _)| candidate(*id)))),
            ("human", json!(facts.preferred.map(candidate))),
            ("rho", json!(mean(&agreement.rho))),
            ("preference", json!(mean(&agreement.preference))),
        ];
        for (name, cell) in cells {
            self.columns.entry(name).or_default().push(cell);
        }
    }
}

/// All strings in the rows.
fn string_cells(tables: &Value) -> impl Iterator<Item = &str> {
    let tables = tables.as_array().into_iter().flatten();
    let rows = tables.flat_map(|table| table["rows"].as_array().into_iter().flatten());
    rows.flat_map(|row| row.as_array().into_iter().flatten()).filter_map(Value::as_str)
}

/// The first string with a space in the first row, such as a question.
fn first_text(detail: &Value) -> Option<&str> {
    let cells = detail["tables"][0]["rows"][0].as_array()?;
    cells.iter().filter_map(Value::as_str).find(|text| text.trim().contains(' '))
}

/// Rounds to six significant digits; the run's tables have full precision.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn shorten(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_u64() && !number.is_i64() => {
            if let Some(float) = number.as_f64() {
                *value = json!(short(float));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        _ => {}
    }
}

/// The files of one run.
struct RunReader<'a> {
    part: &'a ReportPart,
    samples: Option<File>,
    tables: Vec<File>,
    answers: Option<Answers>,
    /// Positions of each sample's requests in the run, as ranges.
    asked: Vec<Vec<Range<usize>>>,
}

impl<'a> RunReader<'a> {
    fn open(part: &'a ReportPart) -> Result<Self, ReportError> {
        let open = |path: &Path| File::open(path).map_err(ReportError::read(path));
        let answers = part.run.answers().map(|path| Answers::open_read_only(&path)).transpose()?;
        let mut asked: Vec<Vec<Range<usize>>> = vec![Vec::new(); part.facts.samples.len()];
        if let Some(answers) = &answers {
            answers.requests(|position, request| {
                // Stored as ranges: requests of a sample are mostly consecutive, and a run may have a million.
                let sample = sample_of(request, |id| part.facts.ids.find(id));
                let Some(places) = sample.map(|number| &mut asked[number as usize]) else { return };
                match places.last_mut() {
                    Some(last) if last.end == position => last.end += 1,
                    _ => places.push(position..position + 1),
                }
            })?;
        }
        Ok(Self {
            part,
            samples: part.run.samples().map(|path| open(&path)).transpose()?,
            tables: part.run.tables.iter().map(|table| open(&table.path)).collect::<Result<_, _>>()?,
            answers,
            asked,
        })
    }

    /// Texts and details of a sample.
    fn sample(&mut self, number: u32, prompts: usize) -> Result<(Value, Value), ReportError> {
        let id = self.part.facts.ids.text(number);
        let asked = self.sample_requests(number, prompts)?;
        let all: usize = self.asked[number as usize].iter().map(ExactSizeIterator::len).sum();
        let mut text = self.texts(number, &asked)?;
        let mut detail = Map::new();
        let tables = self.rows(number)?;
        if text.get("k").is_none() {
            // A sample without its own texts is searched by the strings in its rows.
            text["w"] = Value::Array(string_cells(&tables).map(Value::from).collect());
        }
        detail.insert("tables".into(), tables);
        let mut lines = PromptLines::default();
        let shown: Vec<Value> = asked.iter().map(|asked| lines.request(id, asked)).collect();
        detail.insert("asked".into(), json!(all));
        detail.insert("requests".into(), Value::Array(shown));
        detail.insert("lines".into(), json!(lines.texts));
        Ok((text, Value::Object(detail)))
    }

    /// The first requests of a sample, limited to `most`.
    fn sample_requests(&self, number: u32, most: usize) -> Result<Vec<AnsweredRequest>, ReportError> {
        let mut asked = Vec::new();
        for place in &self.asked[number as usize] {
            if let Some(answers) = &self.answers {
                asked.extend(answers.page(place.start, place.len().min(most - asked.len()))?);
            }
        }
        Ok(asked)
    }

    fn texts(&mut self, number: u32, asked: &[AnsweredRequest]) -> Result<Value, ReportError> {
        let outputs: Vec<&str> = asked
            .iter()
            .filter_map(|asked| match &asked.answer {
                AnyAnswer::Generate(result) => Some(result.text.as_str()),
                AnyAnswer::Score(_) => None,
            })
            .collect();
        let place = self.part.facts.samples[number as usize].text;
        let (Some((start, end)), Some(file)) = (place, &mut self.samples) else { return Ok(json!({"o": outputs})) };
        let path = self.part.run.path.join(probity_store::SAMPLES);
        let line = stretch(file, start, end).map_err(ReportError::read(&path))?;
        let sample: Sample = serde_json::from_slice(&line).map_err(|e| ReportError::read(&path)(e.into()))?;
        let candidates: Vec<Value> = sample.candidates.iter().map(|c| json!([c.id, c.text, c.scores])).collect();
        Ok(json!({
            "c": sample.context,
            "i": sample.instruction,
            "x": sample.texts,
            "k": candidates,
            "r": sample.references,
            "p": sample.preference,
            "o": outputs,
        }))
    }

    /// Rows of a sample by table, with the columns listed once.
    fn rows(&mut self, number: u32) -> Result<Value, ReportError> {
        let mut tables: BTreeMap<u16, (Vec<String>, Vec<Value>)> = BTreeMap::new();
        let id = self.part.facts.ids.text(number);
        for place in &self.part.facts.samples[number as usize].rows {
            let path = &self.part.run.tables[place.table as usize].path;
            let bytes = stretch(&mut self.tables[place.table as usize], place.start, place.end)
                .map_err(ReportError::read(path))?;
            let (columns, rows) = tables.entry(place.table).or_default();
            for line in bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
                let row: Map<String, Value> =
                    serde_json::from_slice(line).map_err(|e| ReportError::read(path)(e.into()))?;
                rows.push(values(row, columns, id));
            }
        }
        let table = |(number, (columns, rows)): (u16, (Vec<String>, Vec<Value>))| {
            let table = &self.part.run.tables[number as usize];
            let kind = match table.kind {
                TableKind::Comparisons => "comparisons",
                TableKind::Scores => "scores",
                TableKind::Other => "other",
            };
            json!({"name": table.name, "kind": kind, "columns": columns, "rows": rows})
        };
        Ok(Value::Array(tables.into_iter().map(table).collect()))
    }
}

/// Values of a row in column order, without its id. New names become columns.
fn values(row: Map<String, Value>, columns: &mut Vec<String>, id: &str) -> Value {
    let mut values = vec![Value::Null; columns.len()];
    let says_id = |name: &str, value: &Value| BELONGS_TO.contains(&name) && value == id;
    for (name, mut value) in row.into_iter().filter(|(name, value)| !says_id(name, value)) {
        shorten(&mut value);
        if let Some(column) = columns.iter().position(|column| *column == name) {
            values[column] = value;
        } else {
            columns.push(name);
            values.push(value);
        }
    }
    Value::Array(values)
}

fn stretch(file: &mut File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (end - start) as usize];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Deduplicated lines of prompts: those of one sample are mostly equal.
#[derive(Default)]
struct PromptLines {
    texts: Vec<String>,
    numbers: std::collections::HashMap<String, usize>,
}

impl PromptLines {
    /// `[name, [[role, [line …]] …], answer]`.
    fn request(&mut self, id: &str, asked: &AnsweredRequest) -> Value {
        let name = asked.request.strip_prefix(id).map_or(asked.request.as_str(), |rest| rest.trim_start_matches('/'));
        let messages = match &asked.prompt {
            Prompt::Text(text) => vec![json!(["text", self.split(text)])],
            Prompt::Tokens(ids) => vec![json!(["tokens", self.split(&format!("{ids:?}"))])],
            Prompt::Pair { source, answer } => {
                let tokens =
                    |name: &str, ids: &[u32], lines: &mut Self| json!([name, lines.split(&format!("{ids:?}"))]);
                vec![tokens("tokens", source, self), tokens("answer prefix", answer, self)]
            }
            Prompt::Chat { messages, answer_prefix, format } => {
                let mut all: Vec<Value> =
                    messages.iter().map(|m| json!([m.role.as_str(), self.split(&m.content)])).collect();
                all.extend(format.differences().iter().map(|(name, text)| json!([name, self.split(text)])));
                if !answer_prefix.is_empty() {
                    all.push(json!(["answer prefix", self.split(answer_prefix)]));
                }
                all
            }
        };
        let answer = match &asked.answer {
            AnyAnswer::Score(result) => serde_json::to_value(result),
            AnyAnswer::Generate(result) => serde_json::to_value(result),
        };
        let mut answer = answer.unwrap_or_default();
        shorten(&mut answer);
        json!([name, messages, answer])
    }

    fn split(&mut self, text: &str) -> Vec<usize> {
        let number = |line: &str| {
            if let Some(number) = self.numbers.get(line) {
                return *number;
            }
            self.texts.push(line.to_owned());
            self.numbers.insert(line.to_owned(), self.texts.len() - 1);
            self.texts.len() - 1
        };
        text.split('\n').map(number).collect()
    }
}
