//! Forms are filled in, and each answer is asked for by its probability.

use std::marker::PhantomData;

use probity_data::from_value;
use probity_lm::{Ask, GenerateRequest, GenerateResult, Outcome, Prompt, ScoreRequest, ScoreResult};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::forms::AskedForm;
use crate::answer_text::answer_of;
use crate::prompt_set::ReadyPrompt;
use crate::stage::{flatten_into, given_mass, given_outcome};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// Which kind of form.
pub(super) trait FormKind: Sync {
    /// The stage in which it is filled in, and the prompt.
    const NAME: &'static str;
    /// The stage in which probabilities of answers are asked for.
    const LABELS: &'static str;
}

/// Questions about two texts.
pub(super) struct Choice;

impl FormKind for Choice {
    const NAME: &'static str = "choice";
    const LABELS: &'static str = "choice_labels";
}

/// Statements about one.
pub(super) struct Likert;

impl FormKind for Likert {
    const NAME: &'static str = "likert";
    const LABELS: &'static str = "likert_labels";
}

/// A form as it came back.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FilledForm {
    /// By question; absent where there is nothing that could be read.
    pub(super) answers: Option<Vec<usize>>,
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: Option<usize>,
    pub(super) tokens: Option<usize>,
}

impl FilledForm {
    fn none(outcome: Outcome) -> Self {
        Self { answers: None, outcome, prompt_tokens: None, tokens: None }
    }

    fn of(result: &GenerateResult, asked: &AskedForm<'_>) -> Self {
        let (prompt_tokens, tokens) = (Some(result.prompt_tokens), Some(result.token_ids.len()));
        let no_json = || Outcome::Unparsed { why: "it is not JSON with every answer".to_owned() };
        let read = answer_of(result).and_then(|text| asked.form.read(&text).ok_or_else(no_json));
        let filled = match (&result.outcome, read) {
            (outcome, _) if !outcome.has_say() => Self::none(outcome.clone()),
            (_, Ok(answers)) => Self { answers: Some(answers), ..Self::none(Outcome::Scored) },
            (_, Err(why)) => Self::none(why),
        };
        Self { prompt_tokens, tokens, ..filled }
    }
}

/// The stage in which forms are filled in: a part, and a row, for each.
pub(super) struct FormStage<'a, K> {
    pub(super) forms: &'a [AskedForm<'a>],
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) inputs: Vec<String>,
    pub(super) kind: PhantomData<K>,
}

/// What a form is filled in by.
fn begin(prompt: &ReadyPrompt, asked: &AskedForm<'_>) -> Prompt {
    let lines = asked.form.lines();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    prompt.prompt_with(&asked.sample.id, &asked.slots(), &[("questions", &lines)])
}

/// Notes the quotes of all prompts, and finds out that they can be made.
fn render<'a>(
    prompt: &ReadyPrompt,
    forms: impl Iterator<Item = &'a AskedForm<'a>>,
    run: &mut Run<'_>,
) -> Result<(), MethodError> {
    for asked in forms {
        let lines = asked.form.lines();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        run.quotes(prompt.render_with(&asked.sample.id, &asked.slots(), &[("questions", &lines)])?.quoted);
    }
    Ok(())
}

impl<K: FormKind> MethodStage for FormStage<'_, K> {
    type Part = FilledForm;
    const NAME: &'static str = K::NAME;

    fn parts(&self) -> usize {
        self.forms.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, FilledForm>) -> Result<(), MethodError> {
        let (asked, empty): (Vec<usize>, Vec<usize>) =
            (0..self.forms.len()).partition(|number| self.forms[*number].can_be_asked());
        render(self.prompt, asked.iter().map(|number| &self.forms[*number]), run)?;
        let request = |number: &usize| {
            let form = &self.forms[*number];
            let request = GenerateRequest::greedy(form.id(K::NAME), begin(self.prompt, form), form.form.tokens());
            GenerateRequest { constraint: Some(form.form.constraint()), ..request }
        };
        run.generate(asked.iter().map(request), |position, result, output| {
            let number = asked[position];
            keep(number, FilledForm::of(&result, &self.forms[number]), output)
        })?;
        for number in empty {
            keep(number, FilledForm::none(Outcome::Empty), run.output()).map_err(MethodError::Output)?;
        }
        Ok(())
    }

    fn identity(&self, number: usize) -> Value {
        self.forms[number].identity()
    }

    fn rows(&self, number: usize, filled: &FilledForm) -> serde_json::Result<Vec<Value>> {
        let asked = &self.forms[number];
        let mut row = asked.identity();
        row["answers"] = json!(filled.answers.as_ref().map(|answers| asked.form.map(answers)));
        flatten_into(&mut row, &filled.outcome)?;
        row["prompt_tokens"] = json!(filled.prompt_tokens);
        row["tokens"] = json!(filled.tokens);
        Ok(vec![row])
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<FilledForm, RowError> {
        let given: GivenForm = from_value(&rows[0])?;
        let form = &self.forms[number].form;
        let answers = match &given.answers {
            None => None,
            Some(all) => Some(form.read_map(all).ok_or_else(|| {
                let wanted: Vec<String> =
                    form.questions.iter().map(|one| format!("{} ({})", one.name, one.answers.join(", "))).collect();
                format!("`answers` lacks one, or has what cannot be an answer: {}", wanted.join("; "))
            })?),
        };
        let outcome = given_outcome(&rows[0])?;
        if outcome.has_answer() != answers.is_some() {
            let said = if answers.is_some() { "there" } else { "missing" };
            return Err(format!("`answers` is {said}, and `outcome` is `{}`", outcome.name()).into());
        }
        if matches!(outcome, Outcome::Tie | Outcome::LowMass { .. }) {
            return Err(format!("a form that was filled in does not end as `{}`", outcome.name()).into());
        }
        Ok(FilledForm { answers, outcome, prompt_tokens: given.prompt_tokens, tokens: given.tokens })
    }

    /// The first answer to everything.
    fn stand_in(&self, number: usize) -> FilledForm {
        let answers = Some(vec![0; self.forms[number].form.questions.len()]);
        FilledForm { answers, ..FilledForm::none(Outcome::Scored) }
    }
}

/// A row that was written before, or by somebody else: the answers are enough.
#[derive(Deserialize)]
struct GivenForm {
    answers: Option<Map<String, Value>>,
    prompt_tokens: Option<usize>,
    tokens: Option<usize>,
}

/// How probable each answer to a question is, behind the answers to those before it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AnswerProbabilities {
    /// By answer; absent where there are none.
    pub(super) probabilities: Option<Vec<f64>>,
    pub(super) mass: Option<f64>,
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: Option<usize>,
}

impl AnswerProbabilities {
    fn of(result: &ScoreResult) -> Self {
        let labels = result.labels();
        Self {
            probabilities: labels.map(|answer| answer.labels.iter().map(|label| label.prob).collect()),
            mass: labels.map(|answer| answer.mass),
            outcome: result.outcome.clone(),
            prompt_tokens: Some(result.prompt_tokens),
        }
    }
}

/// A question of a form that was filled in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AskedAnswer<'a> {
    /// The form's position.
    pub(super) form: usize,
    asked: &'a AskedForm<'a>,
    /// All answers of the form.
    answers: Vec<usize>,
    pub(super) question: usize,
}

impl<'a> AskedAnswer<'a> {
    /// Every question of every form that has answers.
    pub(super) fn all(forms: &'a [AskedForm<'a>], filled: &[FilledForm]) -> Vec<Self> {
        let with_answers = forms.iter().zip(filled).enumerate();
        let with_answers = with_answers.filter_map(|(form, (asked, one))| Some((form, asked, one.answers.as_ref()?)));
        let each = |(form, asked, answers): (usize, &'a AskedForm<'a>, &Vec<usize>)| {
            let answers = answers.clone();
            (0..answers.len()).map(move |question| Self { form, asked, answers: answers.clone(), question })
        };
        with_answers.flat_map(each).collect()
    }

    fn id(&self, stage: &str) -> String {
        format!("{}/{}", self.asked.id(stage), self.asked.form.questions[self.question].name)
    }
}

/// The stage in which the probabilities of answers are asked for: a part, and a row, for each question of each form.
pub(super) struct AnswerStage<'a, K> {
    pub(super) asked: Vec<AskedAnswer<'a>>,
    pub(super) prompt: &'a ReadyPrompt,
    pub(super) inputs: Vec<String>,
    pub(super) kind: PhantomData<K>,
}

impl<K: FormKind> MethodStage for AnswerStage<'_, K> {
    type Part = AnswerProbabilities;
    const NAME: &'static str = K::LABELS;
    const FROM_EARLIER: &'static [&'static str] = &["behind"];

    fn parts(&self) -> usize {
        self.asked.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, AnswerProbabilities>) -> Result<(), MethodError> {
        render(self.prompt, self.asked.iter().filter(|one| one.question == 0).map(|one| one.asked), run)?;
        let labels: Vec<_> = self
            .asked
            .iter()
            .map(|one| one.asked.form.questions[one.question].labels())
            .collect::<Result<_, MethodError>>()?;
        let requests = self.asked.iter().zip(labels).map(|(one, labels)| {
            let begun = one.asked.form.begun(one.question, &one.answers);
            let prompt = going_on(begin(self.prompt, one.asked), &begun);
            ScoreRequest { id: one.id(K::LABELS), prompt, ask: Ask::Labels(labels) }
        });
        run.score(requests, |number, result, output| keep(number, AnswerProbabilities::of(&result), output))
    }

    fn identity(&self, number: usize) -> Value {
        let one = &self.asked[number];
        let mut identity = one.asked.identity();
        identity["question"] = json!(one.asked.form.questions[one.question].name);
        identity["behind"] = json!(one.asked.form.begun(one.question, &one.answers));
        identity
    }

    fn rows(&self, number: usize, said: &AnswerProbabilities) -> serde_json::Result<Vec<Value>> {
        let one = &self.asked[number];
        let mut row = self.identity(number);
        let names = one.asked.form.questions[one.question].answers;
        row["answer"] = json!(names[one.answers[one.question]]);
        row["probabilities"] = json!(said.probabilities.as_ref().map(|all| {
            let named = names.iter().zip(all).map(|(name, p)| ((*name).to_owned(), json!(p)));
            Value::Object(named.collect())
        }));
        row["mass"] = json!(said.mass);
        flatten_into(&mut row, &said.outcome)?;
        row["prompt_tokens"] = json!(said.prompt_tokens);
        Ok(vec![row])
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<AnswerProbabilities, RowError> {
        let GivenAnswer { probabilities, mass, prompt_tokens } = from_value(&rows[0])?;
        let one = &self.asked[number];
        let names = one.asked.form.questions[one.question].answers;
        let probabilities = match probabilities {
            None => None,
            Some(all) => {
                let found: Vec<f64> =
                    names.iter().map(|name| all.get(*name).and_then(Value::as_f64).unwrap_or(f64::NAN)).collect();
                let is_whole = (found.iter().sum::<f64>() - 1.0).abs() < 0.01;
                if !is_whole || found.len() != all.len() {
                    let names = names.join(", ");
                    return Err(format!("`probabilities` are not one for each of {names} that sum to 1").into());
                }
                Some(found)
            }
        };
        let outcome = given_outcome(&rows[0])?;
        if outcome.has_answer() != probabilities.is_some() {
            let said = if probabilities.is_some() { "there" } else { "missing" };
            return Err(format!("`probabilities` is {said}, and `outcome` is `{}`", outcome.name()).into());
        }
        Ok(AnswerProbabilities { probabilities, mass: given_mass(mass)?, outcome, prompt_tokens })
    }

    fn stand_in(&self, number: usize) -> AnswerProbabilities {
        let one = &self.asked[number];
        let count = one.asked.form.questions[one.question].answers.len();
        let even = Some(vec![1.0 / count as f64; count]);
        AnswerProbabilities { probabilities: even, mass: Some(1.0), outcome: Outcome::Scored, prompt_tokens: None }
    }
}

#[derive(Deserialize)]
struct GivenAnswer {
    probabilities: Option<Map<String, Value>>,
    mass: Option<f64>,
    prompt_tokens: Option<usize>,
}

/// The prompt with the beginning of its answer.
fn going_on(prompt: Prompt, begun: &str) -> Prompt {
    let joined = |before: &str| if before.is_empty() { begun.to_owned() } else { format!("{before} {begun}") };
    match prompt {
        Prompt::Chat { messages, answer_prefix } => Prompt::Chat { messages, answer_prefix: joined(&answer_prefix) },
        Prompt::Text(text) => Prompt::Text(joined(&text)),
        tokens => tokens,
    }
}
