//! Stages that query one model: questions as data, and how their answers are read.

use std::borrow::Cow;

use probity_lm::{
    Ask, Constraint, GenerateRequest, GenerateResult, LabelAnswer, LabelSet, LanguageModel, Outcome, Prompt,
    ScoreAnswer, ScoreRequest, ScoreResult,
};
use serde_json::{Value, json};

use crate::answer::{Answer, ChoiceFields};
use crate::prompt_set::{ReadyPrompt, Slots};
use crate::template::Rendered;
use crate::written::{WrittenText, dry_result};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run, row};

/// One question of a stage.
pub struct Query<'a> {
    /// The request's id.
    pub id: String,
    /// The sample's id, for errors in templates.
    pub sample: Cow<'a, str>,
    /// The fields that identify its rows.
    pub identity: Value,
    /// The prompt.
    pub prompt: &'a ReadyPrompt,
    /// The texts for its slots.
    pub slots: Slots<'a>,
    /// The lists for its slots.
    pub lists: Vec<(&'static str, Vec<Cow<'a, str>>)>,
    /// The beginning of the answer, appended to the prompt.
    pub begun: String,
    /// Whether the question is sent to the model.
    pub is_asked: bool,
}

impl<'a> Query<'a> {
    /// A question without lists.
    pub fn new(
        id: String,
        sample: impl Into<Cow<'a, str>>,
        identity: Value,
        prompt: &'a ReadyPrompt,
        slots: Slots<'a>,
    ) -> Self {
        let (lists, begun) = (Vec::new(), String::new());
        Self { id, sample: sample.into(), identity, prompt, slots, lists, begun, is_asked: true }
    }

    /// Skips the model if any slot is empty.
    #[must_use]
    pub fn unless_empty(self) -> Self {
        let is_asked = self.slots.iter().all(|(_, text)| !text.trim().is_empty());
        Self { is_asked, ..self }
    }

    /// Adds the lines of a list.
    #[must_use]
    pub fn with_list(self, name: &'static str, lines: Vec<Cow<'a, str>>) -> Self {
        Self { lists: vec![(name, lines)], ..self }
    }

    fn with_lists<T>(&self, show: impl FnOnce(&[(&'static str, &[&str])]) -> T) -> T {
        let lines: Vec<Vec<&str>> =
            self.lists.iter().map(|(_, lines)| lines.iter().map(Cow::as_ref).collect()).collect();
        let lists: Vec<(&'static str, &[&str])> =
            self.lists.iter().zip(&lines).map(|((name, _), lines)| (*name, lines.as_slice())).collect();
        show(&lists)
    }

    fn render(&self) -> Result<Rendered, MethodError> {
        self.with_lists(|lists| self.prompt.render(&self.sample, &self.slots, lists))
    }

    /// The prompt, and the stop text if the template marks the end of the answer.
    fn prompt(&self) -> (Prompt, Option<String>) {
        let rendered = self.render().expect("it could be rendered before");
        let (stop, prompt) = (rendered.stop(), self.prompt.lay_out(rendered));
        (if self.begun.is_empty() { prompt } else { begin_answer(prompt, &self.begun) }, stop)
    }
}

/// Appends the beginning of the answer to a prompt.
fn begin_answer(prompt: Prompt, begun: &str) -> Prompt {
    let joined = |before: &str| if before.is_empty() { begun.to_owned() } else { format!("{before} {begun}") };
    match prompt {
        Prompt::Chat { messages, answer_prefix, .. } => Prompt::chat(messages, joined(&answer_prefix)),
        Prompt::Text(text) => Prompt::Text(joined(&text)),
        other => other,
    }
}

/// How the answers of a stage are read, written as rows, and read back from rows.
pub trait Readout: Sync {
    /// The parsed answer.
    type Answer: Send;
    /// Whether each answer is one row.
    const ONE_ROW: bool = true;
    /// See [`MethodStage::MADE_ANEW`].
    const MADE_ANEW: &'static [&'static str] = &[];

    /// The labels whose probabilities are the answer; `None` if the model generates text.
    fn labels(&self, _number: usize) -> Option<LabelSet> {
        None
    }

    /// Completes a generation request: token limit and constraint.
    fn request(&self, _number: usize, request: GenerateRequest) -> GenerateRequest {
        request
    }

    /// Reads label probabilities; required for stages with labels.
    fn read_labels(&self, _number: usize, _result: &ScoreResult) -> Self::Answer {
        unreachable!("the stage has no labels")
    }

    /// Reads generated text; required for stages that generate.
    fn read_text(&self, _number: usize, _result: &GenerateResult) -> Self::Answer {
        unreachable!("the stage has labels")
    }

    /// The answer to a question that is not sent; `None` in a dry run if it is unknown.
    fn unasked(&self, _number: usize, _is_rehearsal: bool) -> Result<Option<Self::Answer>, MethodError> {
        unreachable!("each question is asked")
    }

    /// The rows of an answer, without the fields that identify them.
    fn rows(&self, number: usize, answer: &Self::Answer) -> Vec<Value>;

    /// Reads an answer from its rows.
    fn read(&self, number: usize, rows: &[Value]) -> Result<Self::Answer, RowError>;

    /// See [`MethodStage::stand_in`]. The default reads equally probable labels, or a text of the maximum length.
    fn stand_in(&self, number: usize) -> Self::Answer {
        if let Some(labels) = self.labels(number) {
            return self.read_labels(number, &even_labels(&labels));
        }
        let request = GenerateRequest::greedy(String::new(), Prompt::Text(String::new()), 0);
        self.read_text(number, &dry_result(number, self.request(number, request).max_tokens))
    }
}

/// An answer with equally probable labels.
fn even_labels(labels: &LabelSet) -> ScoreResult {
    let logprob = -libm::log(labels.labels().len() as f64);
    let logprobs = labels.labels().iter().map(|label| (label.name.clone(), logprob));
    let answer = LabelAnswer::from_logprobs(logprobs).map(ScoreAnswer::Labels);
    ScoreResult { outcome: Outcome::Scored, prompt_tokens: 0, answer }
}

/// A stage of queries to one model: one part for each.
pub struct QueryStage<'a, R> {
    /// The name of the stage and of its table.
    name: &'static str,
    /// The model that answers.
    model: &'a dyn LanguageModel,
    /// The questions, one for each part.
    queries: Vec<Query<'a>>,
    /// How answers are read.
    readout: R,
    /// See [`MethodStage::inputs`].
    inputs: Vec<String>,
    /// See [`MethodStage::in_rounds`].
    in_rounds: bool,
    /// See [`MethodStage::earlier_fields`].
    earlier_fields: &'static [&'static str],
}

impl<'a, R: Readout> QueryStage<'a, R> {
    /// A stage in one round whose identities hold no results of an earlier stage.
    pub fn new(
        name: &'static str,
        model: &'a dyn LanguageModel,
        queries: Vec<Query<'a>>,
        readout: R,
        inputs: Vec<String>,
    ) -> Self {
        Self { name, model, queries, readout, inputs, in_rounds: false, earlier_fields: &[] }
    }

    /// The stage with identities that hold results of an earlier stage in these fields.
    #[must_use]
    pub fn with_earlier_fields(self, earlier_fields: &'static [&'static str]) -> Self {
        Self { earlier_fields, ..self }
    }

    /// The stage in several rounds.
    #[must_use]
    pub fn in_rounds(self) -> Self {
        Self { in_rounds: true, ..self }
    }

    fn ask(&self, asked: &[usize], run: &mut Run<'_>, keep: &mut KeepPart<'_, R::Answer>) -> Result<(), MethodError> {
        // Prompts are rendered when the model takes them; this checks first that all of them render.
        for number in asked {
            run.quotes(self.queries[*number].render()?.quoted);
        }
        let has_labels = asked.first().is_some_and(|first| self.readout.labels(*first).is_some());
        if has_labels {
            let requests = asked.iter().map(|number| {
                let query = &self.queries[*number];
                let labels = self.readout.labels(*number).expect("each question of the stage has labels");
                ScoreRequest { id: query.id.clone(), prompt: query.prompt().0, ask: Ask::Labels(labels) }
            });
            run.score_by(self.model, requests, |position, result, output| {
                let number = asked[position];
                keep(number, self.readout.read_labels(number, &result), output)
            })
        } else {
            let requests = asked.iter().map(|number| {
                let query = &self.queries[*number];
                let (prompt, stop) = query.prompt();
                let request = GenerateRequest::greedy(query.id.clone(), prompt, 0);
                self.readout.request(*number, GenerateRequest { stop: stop.into_iter().collect(), ..request })
            });
            run.generate_by(self.model, requests, |position, result, output| {
                let number = asked[position];
                keep(number, self.readout.read_text(number, &result), output)
            })
        }
    }
}

impl<R: Readout> MethodStage for QueryStage<'_, R> {
    type Part = R::Answer;
    const ONE_ROW: bool = R::ONE_ROW;
    const MADE_ANEW: &'static [&'static str] = R::MADE_ANEW;

    fn name(&self) -> &'static str {
        self.name
    }

    fn in_rounds(&self) -> bool {
        self.in_rounds
    }

    fn earlier_fields(&self) -> &'static [&'static str] {
        self.earlier_fields
    }

    fn parts(&self) -> usize {
        self.queries.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, R::Answer>) -> Result<(), MethodError> {
        let (asked, unasked): (Vec<usize>, Vec<usize>) =
            (0..self.queries.len()).partition(|number| self.queries[*number].is_asked);
        self.ask(&asked, run, keep)?;
        for number in unasked {
            if let Some(answer) = self.readout.unasked(number, run.is_rehearsal())? {
                keep(number, answer, run.output()).map_err(MethodError::Output)?;
            }
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        self.queries[number].identity.clone()
    }

    fn rows(&self, number: usize, answer: &R::Answer) -> Vec<Value> {
        let row = |fields: Value| row! { ..self.queries[number].identity, ..fields };
        self.readout.rows(number, answer).into_iter().map(row).collect()
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<R::Answer, RowError> {
        self.readout.read(number, rows)
    }

    fn stand_in(&self, number: usize) -> R::Answer {
        // The answers of skipped questions are known in advance.
        let known =
            if self.queries[number].is_asked { None } else { self.readout.unasked(number, true).ok().flatten() };
        known.unwrap_or_else(|| self.readout.stand_in(number))
    }
}

/// How a choice is read from generated text.
pub struct ChoiceText {
    /// The token limit.
    pub tokens: usize,
    /// The constraint on the text.
    pub constraint: Option<Constraint>,
    /// The marker after which label probabilities are read.
    pub marker: Option<String>,
    /// Parses the choice.
    pub read: fn(&GenerateResult) -> Answer<usize>,
}

/// A choice among options: the likeliest label, or one parsed from text.
pub struct ChoiceReadout {
    /// The options.
    pub labels: LabelSet,
    /// How rows store the choice.
    pub fields: ChoiceFields,
    /// `None`: only label probabilities are requested.
    pub text: Option<ChoiceText>,
    /// The answer to a question with nothing to judge.
    pub unasked: Answer<usize>,
    /// The option taken in a dry run.
    pub stand_in: usize,
}

impl ChoiceReadout {
    /// Labels alone; a skipped question chooses none.
    pub fn new(labels: LabelSet, fields: ChoiceFields) -> Self {
        Self { labels, fields, text: None, unasked: Answer::none(Outcome::Empty), stand_in: 0 }
    }
}

impl Readout for ChoiceReadout {
    type Answer = Answer<usize>;

    fn labels(&self, _: usize) -> Option<LabelSet> {
        self.text.is_none().then(|| self.labels.clone())
    }

    fn request(&self, _: usize, request: GenerateRequest) -> GenerateRequest {
        let Some(ChoiceText { tokens, constraint, marker, .. }) = &self.text else { return request };
        let verdict = marker.clone().map(|marker| (marker, self.labels.clone()));
        GenerateRequest { max_tokens: *tokens, constraint: constraint.clone(), verdict, ..request }
    }

    fn read_labels(&self, _: usize, result: &ScoreResult) -> Answer<usize> {
        Answer::likeliest(result)
    }

    fn read_text(&self, _: usize, result: &GenerateResult) -> Answer<usize> {
        let text = self.text.as_ref().expect("the stage generates");
        (text.read)(result)
    }

    fn unasked(&self, _: usize, _: bool) -> Result<Option<Answer<usize>>, MethodError> {
        Ok(Some(self.unasked.clone()))
    }

    fn rows(&self, _: usize, answer: &Answer<usize>) -> Vec<Value> {
        vec![self.fields.row(answer)]
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<Answer<usize>, RowError> {
        self.fields.read(&rows[0], &self.unasked)
    }

    fn stand_in(&self, _: usize) -> Answer<usize> {
        Answer::new(self.stand_in)
    }
}

/// Free text written by the model.
pub struct WrittenReadout {
    /// The token limit.
    pub tokens: usize,
    /// Texts at which the model stops.
    pub stop: Vec<String>,
}

impl Readout for WrittenReadout {
    type Answer = WrittenText;

    fn request(&self, _: usize, request: GenerateRequest) -> GenerateRequest {
        GenerateRequest { max_tokens: self.tokens, stop: [request.stop, self.stop.clone()].concat(), ..request }
    }

    fn read_text(&self, _: usize, result: &GenerateResult) -> WrittenText {
        WrittenText::from_result(result)
    }

    fn unasked(&self, _: usize, _: bool) -> Result<Option<WrittenText>, MethodError> {
        Ok(Some(WrittenText::nothing()))
    }

    fn rows(&self, _: usize, text: &WrittenText) -> Vec<Value> {
        vec![json!(text)]
    }

    fn read(&self, _: usize, rows: &[Value]) -> Result<WrittenText, RowError> {
        WrittenText::read(&rows[0])
    }
}
