//! Methods that score each candidate by itself: the questions, the rows and the summary they have in common.

use probity_data::{Candidate, Sample};
use probity_lm::{
    Ask, ContinuationAnswer, GenerateRequest, GenerateResult, LabelAnswer, LabelSet, Outcome, Precision, Prompt,
    ScoreRequest, ScoreResult, SinkError,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::conclusion::Case;
use crate::gold::{self, GoldUse};
use crate::question::material;
use crate::quote::Quoted;
use crate::run::write_row;
use crate::summary::{Mass, mean, number};
use crate::template::{Layout, Rendered, Template, TemplateError};
use crate::{Headline, MethodError, Outcomes, Output, Report, Run, Section, Signature};

/// The table of all scores.
const SCORES: &str = "scores";

/// What an answer says.
pub(crate) struct Reading {
    /// The score, or why there is none.
    pub(crate) score: Result<f64, Outcome>,
    /// Normalised probability of each label.
    pub(crate) probabilities: Vec<(String, f64)>,
}

/// What is asked of the model about a candidate, and how its answer becomes a score.
pub(crate) enum Asking<'a> {
    /// How probable each label is.
    Labels { labels: LabelSet, read: &'a (dyn Fn(&LabelAnswer) -> Reading + Sync) },
    /// How probable the candidate itself is after the prompt, which does not show it.
    Candidate { read: &'a (dyn Fn(&ContinuationAnswer) -> Result<f64, Outcome> + Sync) },
    /// Texts, `samples` for each prompt; the request is made from an id, the prompt and the number of the sample.
    Texts {
        samples: usize,
        request: &'a (dyn Fn(&str, Prompt, usize) -> GenerateRequest + Sync),
        read: &'a (dyn Fn(&GenerateResult) -> Result<f64, Outcome> + Sync),
    },
}

/// What a candidate is shown with, in the slot `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    Context,
    /// Each of the references; the best score counts.
    References,
}

/// A pointwise method's particulars.
pub(crate) struct Pointwise<'a> {
    pub(crate) samples: &'a [Sample],
    /// The attributes asked about; where there is an `other`, the gold scores to compare with.
    pub(crate) attributes: &'a [String],
    /// The templates of each attribute, or of the one question where the prompt names no attribute.
    pub(crate) templates: &'a [Vec<Template>],
    pub(crate) asking: Asking<'a>,
    pub(crate) layout: Layout,
    pub(crate) other: Option<Other>,
    pub(crate) no_gold: bool,
    /// What the score is, for the table's head.
    pub(crate) unit: &'static str,
}

/// One prompt: a candidate under one template, against one reference where there are several.
#[derive(Debug, Clone, Copy)]
struct Question {
    position: usize,
    row: usize,
    template: usize,
    reference: Option<usize>,
}

#[derive(Debug, Clone, Serialize)]
struct Answer {
    template: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<usize>,
    #[serde(flatten)]
    told: Told,
}

/// What the model told about one question, besides the score: probabilities of labels, tokens of a candidate, generated
/// texts.
#[derive(Debug, Clone, Serialize)]
struct Told {
    score: Option<f64>,
    #[serde(skip)]
    mass: Option<f64>,
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(flatten)]
    shown: Map<String, Value>,
    prompt_tokens: Option<usize>,
    /// Generated texts without a score.
    #[serde(skip)]
    unparsed: usize,
}

/// Takes what one question came to.
type Keep<'k> = dyn FnMut(usize, Told, &mut dyn Output) -> Result<(), SinkError> + Send + 'k;

impl Told {
    fn from_labels(result: &ScoreResult, read: &dyn Fn(&LabelAnswer) -> Reading) -> Self {
        let reading = result.labels().map(read);
        let (score, mut outcome) = match &reading {
            Some(Reading { score: Ok(score), .. }) => (Some(*score), result.outcome.clone()),
            Some(Reading { score: Err(outcome), .. }) => (None, outcome.clone()),
            None => (None, result.outcome.clone()),
        };
        // That two labels are equally probable is no tie of a score: the number stands.
        if outcome == Outcome::Tie {
            outcome = Outcome::Scored;
        }
        let probabilities = reading.map(|r| r.probabilities).unwrap_or_default();
        let probabilities: Map<String, Value> = probabilities.into_iter().map(|(name, p)| (name, json!(p))).collect();
        let mass = result.labels().map(|l| l.mass);
        let shown = Map::from_iter([
            ("mass".to_owned(), json!(mass)),
            ("probabilities".to_owned(), Value::Object(probabilities)),
        ]);
        Self { score, mass, outcome, shown, prompt_tokens: Some(result.prompt_tokens), unparsed: 0 }
    }

    fn from_continuation(result: &ScoreResult, read: &dyn Fn(&ContinuationAnswer) -> Result<f64, Outcome>) -> Self {
        let answer = result.continuation();
        let (score, outcome) = match answer.map(read) {
            Some(Ok(score)) => (Some(score), result.outcome.clone()),
            Some(Err(outcome)) => (None, outcome),
            None => (None, result.outcome.clone()),
        };
        let shown = Map::from_iter([("tokens".to_owned(), json!(answer.map(|a| a.token_logprobs.len())))]);
        Self { score, mass: None, outcome, shown, prompt_tokens: Some(result.prompt_tokens), unparsed: 0 }
    }

    /// The mean over the texts that have a score. A model that ends its turn at once has given none; any other missing
    /// text is the model's outcome, and then the question has no score.
    fn from_texts(results: &[GenerateResult], read: &dyn Fn(&GenerateResult) -> Result<f64, Outcome>) -> Self {
        let failed = results
            .iter()
            .map(|result| &result.outcome)
            .find(|o| matches!(o, Outcome::TooLong { .. } | Outcome::NotFinite { .. }));
        let readings: Vec<Result<f64, Outcome>> = results.iter().map(read).collect();
        let unparsed = if failed.is_some() { 0 } else { readings.iter().filter(|reading| reading.is_err()).count() };
        let (score, outcome) =
            match (failed, mean(readings.iter().filter_map(|reading| reading.as_ref().ok().copied()))) {
                (Some(outcome), _) => (None, outcome.clone()),
                (None, Some(score)) => (Some(score), Outcome::Scored),
                (None, None) => (None, readings.into_iter().find_map(Result::err).unwrap_or(Outcome::Empty)),
            };
        let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
        let shown = Map::from_iter([("texts".to_owned(), json!(texts))]);
        Self {
            score,
            mass: None,
            outcome,
            shown,
            prompt_tokens: results.first().map(|result| result.prompt_tokens),
            unparsed,
        }
    }
}

/// A candidate's score under one question, once all of its answers are in.
#[derive(Debug, Clone, Serialize)]
struct Row<'a> {
    item: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<&'a str>,
    candidate: &'a str,
    index: usize,
    score: Option<f64>,
    #[serde(skip)]
    mass: Option<f64>,
    #[serde(flatten)]
    outcome: Outcome,
    precision: Precision,
    /// The mass, where labels are asked for.
    #[serde(flatten)]
    shown: Map<String, Value>,
    answers: Vec<Answer>,
}

/// Where a row stands: which group of templates, which sample, which candidate.
#[derive(Debug, Clone, Copy)]
struct Place {
    group: usize,
    item: usize,
    candidate: usize,
}

impl<'a> Pointwise<'a> {
    /// Asks everything, writes the rows and sums up.
    pub(crate) fn run(&self, signature: Signature, run: &mut Run<'_>) -> Result<Report, MethodError> {
        let gold = gold::uses(self.samples, self.attributes, self.no_gold)?;
        let without = self.without_other()?;
        let precision = run.model().description().precision;
        let places = self.places();
        let mut quoted = Quoted::default();
        let mut questions = Vec::new();
        let mut answers: Vec<Vec<Option<Answer>>> = vec![Vec::new(); places.len()];
        for (row, place) in places.iter().enumerate() {
            for question in self.questions(row, *place) {
                answers[row].push(None);
                // Prompts are made when the model takes them; that all of them can be is found out first.
                quoted += self.render(*place, question)?.quoted;
                questions.push(question);
            }
        }
        run.table(SCORES, places.len())?;
        let mut rows: Vec<Option<Row<'a>>> = vec![None; places.len()];
        for (index, place) in places.iter().enumerate().filter(|(index, _)| answers[*index].is_empty()) {
            let row = self.row(*place, Vec::new(), precision);
            run.row(SCORES, index, &row)?;
            rows[index] = Some(row);
        }
        let places_asked: Vec<(Place, Question)> =
            questions.iter().map(|question| (places[question.row], *question)).collect();
        self.ask(&places_asked, run, &mut |asked, told, output| {
            let question = questions[asked];
            let open = &mut answers[question.row];
            open[question.position] = Some(self.answer(places[question.row], question, told));
            if open.iter().any(Option::is_none) {
                return Ok(());
            }
            let row = self.row(places[question.row], std::mem::take(open).into_iter().flatten().collect(), precision);
            write_row(output, SCORES, question.row, &row)?;
            rows[question.row] = Some(row);
            Ok(())
        })?;
        let rows: Vec<Row<'a>> = rows.into_iter().map(|row| row.expect("each question is answered")).collect();
        let mut report = self.report(&places, &rows, &gold, quoted, signature);
        if let (Some(other), Some(section), 1..) = (self.other, report.sections.first_mut(), without) {
            let what = if other == Other::Context { "context" } else { "reference" };
            section.note(format!(
                "{without} of {} samples have no {what}: their candidates are not scored",
                self.samples.len()
            ));
        }
        Ok(report)
    }

    fn places(&self) -> Vec<Place> {
        let candidates = |item: usize| 0..self.samples[item].candidates.len();
        let groups = 0..self.templates.len();
        (0..self.samples.len())
            .flat_map(|item| {
                groups
                    .clone()
                    .flat_map(move |group| candidates(item).map(move |candidate| Place { group, item, candidate }))
            })
            .collect()
    }

    /// The questions of one row; none where there is nothing to judge.
    fn questions(&self, row: usize, place: Place) -> Vec<Question> {
        let sample = &self.samples[place.item];
        let others: Vec<(Option<usize>, &str)> = match self.other {
            None => vec![(None, "")],
            Some(Other::Context) => vec![(None, sample.context.as_str())],
            Some(Other::References) => {
                sample.references.iter().enumerate().map(|(k, r)| (Some(k), r.as_str())).collect()
            }
        };
        let empty = |text: &str| text.trim().is_empty();
        if empty(&self.candidate(place).text) {
            return Vec::new();
        }
        let mut questions = Vec::new();
        for template in 0..self.templates[place.group].len() {
            for &(reference, _) in others.iter().filter(|(_, other)| self.other.is_none() || !empty(other)) {
                questions.push(Question { position: questions.len(), row, template, reference });
            }
        }
        questions
    }

    fn render(&self, place: Place, question: Question) -> Result<Rendered, TemplateError> {
        let sample = &self.samples[place.item];
        let template = &self.templates[place.group][question.template];
        let candidate = ("candidate", self.candidate(place).text.as_str());
        if self.other.is_some() {
            let other = question.reference.map_or(sample.context.as_str(), |k| sample.references[k].as_str());
            return template.render(&sample.id, &[candidate, ("other", other)]);
        }
        let [context, instruction] = material(sample);
        let shown = [context, instruction, candidate];
        // A candidate that is asked for is not shown.
        let shown = if matches!(self.asking, Asking::Candidate { .. }) { &shown[..2] } else { &shown[..] };
        template.render(&sample.id, shown)
    }

    fn prompt(&self, place: Place, question: Question) -> Prompt {
        self.render(place, question).expect("it could be rendered before").prompt(&self.layout)
    }

    /// Samples without anything to hold candidates against; that no sample has it is an error.
    fn without_other(&self) -> Result<usize, MethodError> {
        let Some(other) = self.other else { return Ok(0) };
        let lacks = |sample: &&Sample| match other {
            Other::Context => sample.context.trim().is_empty(),
            Other::References => sample.references.iter().all(|text| text.trim().is_empty()),
        };
        let without = self.samples.iter().filter(lacks).count();
        if without < self.samples.len() {
            return Ok(without);
        }
        Err(match other {
            Other::Context => MethodError::option(
                "--against context",
                "no sample has a context",
                "give the samples a \"context\", or say --against reference",
            ),
            Other::References => MethodError::option(
                "--against reference",
                "no sample has references",
                "give the samples \"references\", or say --against context",
            ),
        })
    }

    fn candidate(&self, place: Place) -> &'a Candidate {
        &self.samples[place.item].candidates[place.candidate]
    }

    fn request_id(&self, place: Place, question: Question) -> String {
        let template = self.templates[place.group][question.template].name();
        let reference = question.reference.map(|k| format!("/reference {k}")).unwrap_or_default();
        // Sampled answers are seeded by the id: two attributes must not share one.
        let attribute = if self.other.is_none() { format!("{}/", self.attributes[place.group]) } else { String::new() };
        format!("{}/{}/{attribute}{template}{reference}", self.samples[place.item].id, self.candidate(place).id)
    }

    /// Puts the questions to the model; `keep` gets what each came to, by position.
    fn ask(&self, questions: &[(Place, Question)], run: &mut Run<'_>, keep: &mut Keep<'_>) -> Result<(), MethodError> {
        let request = |&(place, question): &(Place, Question), ask: Ask| ScoreRequest {
            id: self.request_id(place, question),
            prompt: self.prompt(place, question),
            ask,
        };
        match &self.asking {
            Asking::Labels { labels, read } => {
                let requests = questions.iter().map(|asked| request(asked, Ask::Labels(labels.clone())));
                run.score(requests, |index, result, output| keep(index, Told::from_labels(&result, *read), output))
            }
            Asking::Candidate { read } => {
                let continuation = |place: Place| Ask::Continuation(format!(" {}", self.candidate(place).text.trim()));
                let requests = questions.iter().map(|asked| request(asked, continuation(asked.0)));
                run.score(requests, |index, result, output| {
                    keep(index, Told::from_continuation(&result, *read), output)
                })
            }
            Asking::Texts { samples, request, read } => {
                let requests = (0..questions.len() * samples).map(|index| {
                    let (place, question) = questions[index / samples];
                    request(&self.request_id(place, question), self.prompt(place, question), index % samples)
                });
                let mut open: Vec<Vec<Option<GenerateResult>>> = vec![vec![None; *samples]; questions.len()];
                run.generate(requests, |index, result, output| {
                    let (prompt, sample) = (index / samples, index % samples);
                    open[prompt][sample] = Some(result);
                    if open[prompt].iter().any(Option::is_none) {
                        return Ok(());
                    }
                    let results: Vec<GenerateResult> =
                        std::mem::take(&mut open[prompt]).into_iter().flatten().collect();
                    keep(prompt, Told::from_texts(&results, *read), output)
                })
            }
        }
    }

    fn answer(&self, place: Place, question: Question, told: Told) -> Answer {
        let template = self.templates[place.group][question.template].name().to_owned();
        Answer { template, reference: question.reference, told }
    }

    /// The best answer per template over references, then the mean over templates. One template without a score leaves
    /// the row without: a mean over fewer templates would not compare with the others.
    fn row(&self, place: Place, answers: Vec<Answer>, precision: Precision) -> Row<'a> {
        let mut best: Vec<&Told> = Vec::new();
        for template in &self.templates[place.group] {
            let of_template = answers.iter().filter(|a| a.template == template.name());
            let score = |told: &Told| told.score.unwrap_or(f64::NEG_INFINITY);
            best.extend(of_template.map(|a| &a.told).max_by(|a, b| score(a).total_cmp(&score(b))));
        }
        let outcome = match best.iter().find(|a| a.score.is_none()) {
            Some(failed) => failed.outcome.clone(),
            None if best.is_empty() => Outcome::Empty,
            None if best.iter().any(|a| a.outcome == Outcome::LowMass) => Outcome::LowMass,
            None => Outcome::Scored,
        };
        let score = if outcome.has_answer() { mean(best.iter().filter_map(|a| a.score)) } else { None };
        let mass = mean(best.iter().filter_map(|a| a.mass));
        let attribute = if self.other.is_none() { self.attributes.get(place.group).map(String::as_str) } else { None };
        let sample = &self.samples[place.item];
        let candidate = &self.candidate(place).id;
        let asked = matches!(self.asking, Asking::Labels { .. }).then(|| ("mass".to_owned(), json!(mass)));
        let shown = asked.into_iter().collect();
        Row {
            item: &sample.id,
            attribute,
            candidate,
            index: place.candidate,
            score,
            mass,
            outcome,
            precision,
            shown,
            answers,
        }
    }

    fn report(
        &self,
        places: &[Place],
        rows: &[Row<'_>],
        gold: &[GoldUse<'_>],
        quoted: Quoted,
        mut signature: Signature,
    ) -> Report {
        let mut outcomes = Outcomes::default();
        for row in rows {
            outcomes.add(&row.outcome);
        }
        let mut scores_table = Section::new(
            &format!("Scores ({})", self.unit),
            ["attribute", "scored", "mean", "min", "max", "> 0", "mass", "low mass"],
        );
        let mut gold_table = gold::section();
        let mut systems = gold::systems_section(self.unit);
        let (mut groups, mut of_gold, mut headline, mut means) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut verdict = Vec::new();
        for group in 0..self.templates.len() {
            let name = if self.other.is_none() { self.attributes[group].as_str() } else { "–" };
            let of_group: Vec<(&Place, &Row<'_>)> =
                places.iter().zip(rows).filter(|(place, _)| place.group == group).collect();
            let figures = Figures::of(of_group.iter().map(|(_, row)| *row));
            figures.push(name, &mut scores_table);
            means.push(Headline::new("mean", (name != "–").then_some(name), figures.mean));
            let mut scores: Vec<Vec<Option<f64>>> =
                self.samples.iter().map(|s| vec![None; s.candidates.len()]).collect();
            for (place, row) in &of_group {
                scores[place.item][place.candidate] = row.score;
            }
            let about = |attribute: &str| (self.attributes.len() > 1).then(|| attribute.to_owned());
            let conclude = |about: Option<String>, gold: Option<&probity_stats::Figures>| {
                let mass = (figures.mass.answers > 0).then_some(figures.mass);
                Case {
                    about,
                    samples: self.samples,
                    scores: &scores,
                    gold,
                    preferences: !self.no_gold,
                    turned: None,
                    first_wins: None,
                    mass,
                }
                .conclusion()
            };
            let used = gold.iter().filter(|g| g.present && (self.other.is_some() || g.attribute == name));
            for one in used {
                let figures = gold::against(self.samples, one.attribute, &scores);
                gold::push(&figures, one.attribute, "", &mut gold_table);
                headline.push(Headline::new("Spearman", Some(one.attribute), figures.spearman.per_context.figure.mean));
                verdict.push(conclude(about(one.attribute), Some(&figures)));
                of_gold.push(json!({ "attribute": one.attribute, "figures": figures }));
            }
            if !gold.iter().any(|g| g.present && (self.other.is_some() || g.attribute == name)) {
                verdict.push(conclude(about(name), None));
            }
            gold::push_systems(self.samples, name, &scores, &mut systems);
            groups.push(json!({ "attribute": (name != "–").then_some(name), "figures": figures }));
            for template in &self.templates[group] {
                signature = signature.with_template(template.name(), template.sha256());
            }
        }
        scores_table.note(match self.asking {
            Asking::Labels { .. } => {
                "> 0: share of scores above zero. Mass: probability of all labels together; low mass: share flagged \
                 low_mass (--min-mass)."
            }
            Asking::Candidate { .. } | Asking::Texts { .. } => {
                "> 0: share of scores above zero. No labels are asked for: there is no mass."
            }
        });
        let low: usize = rows.iter().filter(|row| row.outcome == Outcome::LowMass).count();
        if low > 0 {
            scores_table.note(format!(
                "for {low} of {} candidates the model hardly considers any of the labels; read them with care.",
                rows.len()
            ));
        }
        outcomes.notes(&signature.model, &mut scores_table);
        gold::notes(gold, &mut scores_table);
        let mut values = json!({ "scores": groups, "gold": of_gold });
        if let Asking::Texts { .. } = self.asking {
            let unparsed: usize = rows.iter().flat_map(|row| &row.answers).map(|answer| answer.told.unparsed).sum();
            values["unparsed_samples"] = json!(unparsed);
            if unparsed > 0 {
                scores_table.note(format!("{unparsed} generated texts hold no score; a mean is over the others"));
            }
        }
        if self.other.is_none() {
            signature = signature.with("attributes", &self.attributes.join(","));
        }
        let sections = [scores_table, systems, gold_table].into_iter().filter(|s| !s.rows.is_empty()).collect();
        let headline = if headline.is_empty() { means } else { headline };
        Report { values, sections, signature, outcomes, headline, verdict, quoted }
    }
}

/// Figures over the scores of one question.
#[derive(Debug, Clone, Serialize)]
struct Figures {
    candidates: usize,
    scored: usize,
    mean: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    share_above_zero: Option<f64>,
    mass: Mass,
}

impl Figures {
    fn of<'r>(rows: impl Iterator<Item = &'r Row<'r>> + Clone) -> Self {
        let scores: Vec<f64> = rows.clone().filter_map(|row| row.score).collect();
        Self {
            candidates: rows.clone().count(),
            scored: scores.len(),
            mean: mean(scores.iter().copied()),
            min: scores.iter().copied().reduce(f64::min),
            max: scores.iter().copied().reduce(f64::max),
            share_above_zero: mean(scores.iter().map(|s| f64::from(u8::from(*s > 0.0)))),
            mass: Mass::of(rows.filter_map(|row| row.mass.map(|mass| (mass, row.outcome == Outcome::LowMass)))),
        }
    }

    fn push(&self, name: &str, table: &mut Section) {
        let scored = format!("{} of {}", self.scored, self.candidates);
        let cells =
            [self.mean, self.min, self.max, self.share_above_zero, self.mass.mean, self.mass.low_share].map(number);
        table.push([name.to_owned(), scored].into_iter().chain(cells));
    }
}
