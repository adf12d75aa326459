//! Stages that fill in forms and read the probability of each answer.

use probity_data::from_value;
use probity_lm::{GenerateRequest, GenerateResult, LabelSet, LanguageModel, Outcome, ScoreResult};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::forms::AskedForm;
use crate::answer::{Answer, ChoiceFields, ProbabilityFields};
use crate::prompt_set::ReadyPrompt;
use crate::query::{ChoiceReadout, Query, QueryStage, Readout};
use crate::stage::row_outcome;
use crate::{MethodError, RowError, row};

/// The stages of one kind of form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormKind {
    /// The stage that fills in forms, and its prompt.
    pub(super) name: &'static str,
    /// The stage that reads label probabilities.
    pub(super) labels: &'static str,
}

/// Questions about two texts.
pub(super) const CHOICE: FormKind = FormKind { name: "choice", labels: "choice_labels" };
/// Statements about one text.
pub(super) const LIKERT: FormKind = FormKind { name: "likert", labels: "likert_labels" };

/// The answers of a form by question.
pub(super) type FilledForm = Answer<Vec<usize>>;

/// The query of a form.
fn form_query<'a>(id: String, identity: Value, asked: &AskedForm<'a>, prompt: &'a ReadyPrompt) -> Query<'a> {
    let lines = asked.form.lines().into_iter().map(Into::into).collect();
    Query::new(id, asked.sample.id.as_str(), identity, prompt, asked.slots()).with_list("questions", lines)
}

/// The stage that fills in forms: one query for each.
pub(super) fn form_stage<'a>(
    kind: FormKind,
    forms: &'a [AskedForm<'a>],
    prompt: &'a ReadyPrompt,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> QueryStage<'a, FormReadout<'a>> {
    let query = |asked: &'a AskedForm<'a>| Query {
        is_asked: asked.has_all_texts(),
        ..form_query(asked.id(kind.name), asked.identity(), asked, prompt)
    };
    let queries = forms.iter().map(query).collect();
    QueryStage::new(kind.name, model, queries, FormReadout(forms), inputs)
}

/// Reads the answers of a form from JSON.
pub(super) struct FormReadout<'a>(&'a [AskedForm<'a>]);

impl Readout for FormReadout<'_> {
    type Answer = FilledForm;

    fn request(&self, number: usize, request: GenerateRequest) -> GenerateRequest {
        let form = &self.0[number].form;
        GenerateRequest { max_tokens: form.tokens(), constraint: Some(form.constraint()), ..request }
    }

    fn read_text(&self, number: usize, result: &GenerateResult) -> FilledForm {
        let no_json = || Outcome::Unparsed { why: "not JSON with all answers".to_owned() };
        Answer::from_text(result, |text| self.0[number].form.read(text).ok_or_else(no_json))
    }

    fn unasked(&self, _: usize, _: bool) -> Result<Option<FilledForm>, MethodError> {
        Ok(Some(Answer::none(Outcome::Empty)))
    }

    fn rows(&self, number: usize, filled: &FilledForm) -> Vec<Value> {
        let answers = filled.value.as_ref().map(|answers| self.0[number].form.map(answers));
        vec![row! { "answers": answers, ..filled.end(true) }]
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<FilledForm, RowError> {
        let given: GivenForm = from_value(&rows[0])?;
        let form = &self.0[number].form;
        let value = match &given.answers {
            None => None,
            Some(all) => Some(form.read_map(all).ok_or_else(|| {
                let wanted: Vec<String> =
                    form.questions.iter().map(|one| format!("{} ({})", one.name, one.answers.join(", "))).collect();
                format!("`answers` lacks an answer or has an invalid one: {}", wanted.join("; "))
            })?),
        };
        let outcome = row_outcome(&rows[0])?;
        if outcome.has_answer() != value.is_some() {
            let said = if value.is_some() { "present" } else { "missing" };
            return Err(format!("`answers` is {said}, but `outcome` is `{}`", outcome.name()).into());
        }
        if matches!(outcome, Outcome::Tie | Outcome::LowMass { .. }) {
            return Err(format!("a form cannot have the outcome `{}`", outcome.name()).into());
        }
        Ok(Answer { value, counts: from_value(&rows[0])?, ..Answer::none(outcome) })
    }

    /// The first answer to every question.
    fn stand_in(&self, number: usize) -> FilledForm {
        Answer::new(vec![0; self.0[number].form.questions.len()])
    }
}

/// A row written before or provided by the user; the answers are enough.
#[derive(Deserialize)]
struct GivenForm {
    answers: Option<Map<String, Value>>,
}

/// One question of a filled-in form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuestionAnswer<'a> {
    /// The form's position.
    pub(super) form: usize,
    asked: &'a AskedForm<'a>,
    /// All answers of the form.
    answers: Vec<usize>,
    pub(super) question: usize,
}

impl<'a> QuestionAnswer<'a> {
    /// Every question of every form with answers.
    pub(super) fn all(forms: &'a [AskedForm<'a>], filled: &[FilledForm]) -> Vec<Self> {
        let with_answers = forms.iter().zip(filled).enumerate();
        let with_answers = with_answers.filter_map(|(form, (asked, one))| Some((form, asked, one.value.as_ref()?)));
        let each = |(form, asked, answers): (usize, &'a AskedForm<'a>, &Vec<usize>)| {
            let answers = answers.clone();
            (0..answers.len()).map(move |question| Self { form, asked, answers: answers.clone(), question })
        };
        with_answers.flat_map(each).collect()
    }

    fn query(&self, kind: FormKind, prompt: &'a ReadyPrompt) -> Query<'a> {
        let Self { asked, answers, question, .. } = self;
        let one = &asked.form.questions[*question];
        let begun = asked.form.begun(*question, answers);
        let mut identity = asked.identity();
        identity["question"] = json!(one.name);
        identity["behind"] = json!(begun);
        identity["answer"] = json!(one.answers[answers[*question]]);
        Query { begun, ..form_query(format!("{}/{}", asked.id(kind.labels), one.name), identity, asked, prompt) }
    }
}

/// The stage that reads label probabilities, each after the preceding answers: one query for each question of each
/// form.
pub(super) fn answer_stage<'a>(
    kind: FormKind,
    asked: &[QuestionAnswer<'a>],
    prompt: &'a ReadyPrompt,
    model: &'a dyn LanguageModel,
    inputs: Vec<String>,
) -> Result<QueryStage<'a, AnswerReadout>, MethodError> {
    let readout = |one: &QuestionAnswer<'_>| {
        let question = &one.asked.form.questions[one.question];
        let fields = ChoiceFields {
            value: None,
            options: question.answers.iter().map(|name| json!(name)).collect(),
            probabilities: ProbabilityFields::ByOption,
            text: None,
            tokens: false,
        };
        Ok(ChoiceReadout::new(question.labels()?, fields))
    };
    Ok(QueryStage::new(
        kind.labels,
        model,
        asked.iter().map(|one| one.query(kind, prompt)).collect(),
        AnswerReadout(asked.iter().map(readout).collect::<Result<_, MethodError>>()?),
        inputs,
    )
    .with_earlier_fields(&["behind", "answer"]))
}

/// A choice for each question among its own answers.
pub(super) struct AnswerReadout(Vec<ChoiceReadout>);

impl Readout for AnswerReadout {
    type Answer = Answer<usize>;

    fn labels(&self, number: usize) -> Option<LabelSet> {
        self.0[number].labels(number)
    }

    fn read_labels(&self, number: usize, result: &ScoreResult) -> Answer<usize> {
        self.0[number].read_labels(number, result)
    }

    fn rows(&self, number: usize, answer: &Answer<usize>) -> Vec<Value> {
        self.0[number].rows(number, answer)
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<Answer<usize>, RowError> {
        self.0[number].read(number, rows)
    }
}
