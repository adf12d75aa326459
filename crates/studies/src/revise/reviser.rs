//! Generates references by revision.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::{GenerateRequest, GenerateResult, LanguageModel, Prompt, Sampling, SamplingLimits};
use probity_options::Options;
use rand::Rng;
use serde_json::Value;

use super::REVISIONS;
use super::options::{ReviserOptions, RevisionFocus, RevisionKind};
use super::rows::{identity, row};
use super::similarity::{Measures, Similarity};
use crate::builtin::{Builtin, DataSlot};
use crate::judge::Mode;
use crate::pairs::{rng_for, seed_for};
use crate::prompt_set::ReadyPrompt;
use crate::query::{Query, QueryStage, Readout};
use crate::question::{MATERIAL, material, short_hash};
use crate::template::{PromptLayout, Template};
use crate::written::{WrittenOutcome, WrittenText, dry_result};
use crate::{MethodError, RowError, Signature};

/// The temperature of paraphrases.
const TEMPERATURE: f64 = 1.0;

/// The options that the stage depends on.
const READ: [&str; 6] = ["mode", "noun", "seed", "revision-tokens", "good-draft", "diversify"];

/// The outcome of a complete reference.
pub(super) const REVISED: &str = "revised";

/// The prompts by the texts shown: a text with another as guidance, a single text, both texts, none, an existing
/// reference.
pub(super) const TEMPLATES: &[Builtin] = &[
    Builtin { name: "adapted", source: include_str!("../prompts/revise_adapted.j2"), data: GUIDED },
    Builtin { name: "alone", source: include_str!("../prompts/revise_alone.j2"), data: ALONE },
    Builtin { name: "both", source: include_str!("../prompts/revise_both.j2"), data: GUIDED },
    Builtin { name: "direct", source: include_str!("../prompts/revise_direct.j2"), data: &MATERIAL },
    Builtin { name: "diversified", source: include_str!("../prompts/revise_diversified.j2"), data: PARAPHRASED },
];

const GUIDED: &[DataSlot] = &[DataSlot::required("response"), DataSlot::required("guidance"), MATERIAL[0], MATERIAL[1]];
const ALONE: &[DataSlot] = &[DataSlot::required("response"), MATERIAL[0], MATERIAL[1]];
const PARAPHRASED: &[DataSlot] = &[DataSlot::required("reference"), MATERIAL[0], MATERIAL[1]];

/// References of one kind, for one attribute or aspect.
pub(crate) struct RevisionSet {
    pub(crate) kind: RevisionKind,
    pub(crate) focus: RevisionFocus,
    pub(crate) prompt: ReadyPrompt,
}

/// A reference to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RevisionJob {
    pub(crate) item: usize,
    /// The position of its [`RevisionSet`].
    pub(crate) set: usize,
    /// The candidate to revise; if both are revised together, the one shown first.
    pub(crate) primary: Option<usize>,
    /// The other candidate shown.
    pub(crate) guidance: Option<usize>,
    /// The existing reference to paraphrase, and the number of the paraphrase.
    pub(crate) paraphrase: Option<(usize, usize)>,
}

/// A reference, or why it is missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Revision {
    pub(crate) job: RevisionJob,
    pub(crate) made: WrittenText,
    /// Similarity to the candidates shown, or to all if none was, by position.
    pub(crate) similarity: Vec<(usize, Similarity)>,
}

impl Revision {
    /// The result of a job whose prompt has nothing to show.
    fn without_text(job: RevisionJob) -> Self {
        Self { job, made: WrittenText::nothing(), similarity: Vec::new() }
    }

    /// The outcome for counting: a truncated text that is used counts as answered.
    pub(crate) fn outcome(&self, use_truncated: bool) -> &'static str {
        match &self.made.ended {
            WrittenOutcome::Written => REVISED,
            WrittenOutcome::Truncated if use_truncated => "truncated_used",
            ended => ended.name(),
        }
    }

    /// Whether it can serve as a reference.
    pub(crate) fn is_usable(&self, use_truncated: bool) -> bool {
        let is_cut = self.made.ended == WrittenOutcome::Truncated;
        self.made.ended == WrittenOutcome::Written || (use_truncated && is_cut)
    }
}

/// The settings of generation besides the user's options.
#[derive(Debug, Clone)]
pub(crate) struct RevisionSettings<'a> {
    pub(crate) options: &'a ReviserOptions,
    pub(crate) mode: Mode,
    /// The noun for a candidate.
    pub(crate) noun: &'a str,
    pub(crate) max_tokens: u32,
    pub(crate) layout: PromptLayout,
    pub(crate) seed: u64,
}

/// Generates references.
pub(crate) struct Reviser<'a> {
    pub(crate) samples: &'a [Sample],
    pub(crate) how: RevisionSettings<'a>,
    pub(crate) sets: Vec<RevisionSet>,
}

impl<'a> Reviser<'a> {
    /// Prepares references of these kinds. Answers, paraphrases and revisions by aspect do not depend on `foci` and are
    /// generated once.
    pub(crate) fn new(
        how: RevisionSettings<'a>,
        kinds: &[RevisionKind],
        foci: &[RevisionFocus],
        samples: &'a [Sample],
    ) -> Result<Self, MethodError> {
        let mut sets = Vec::new();
        for &kind in kinds {
            let foci = match kind {
                RevisionKind::Direct | RevisionKind::Diversified => {
                    vec![RevisionFocus { name: None, comparative: "better".into(), criteria: "–".into() }]
                }
                RevisionKind::Aspects => how.options.aspects()?,
                RevisionKind::Adapted | RevisionKind::Both | RevisionKind::Each => foci.to_vec(),
            };
            for focus in foci {
                let prompt = ReadyPrompt::new(load(&how, kind, &focus)?, how.layout.clone());
                sets.push(RevisionSet { kind, focus, prompt });
            }
        }
        Ok(Self { samples, how, sets })
    }

    /// Adds to a signature what the references depend on besides model and options.
    pub(crate) fn sign(&self, signature: Signature) -> Signature {
        let foci = self.sets.iter().flat_map(|set| [set.kind.as_str(), &set.focus.comparative, &set.focus.criteria]);
        let signature = signature.with("revision-criteria", &short_hash(foci)).with_layout(&self.how.layout);
        signature.with_templates(self.sets.iter().map(|set| set.prompt.template()))
    }

    /// All references to generate, sample by sample.
    pub(crate) fn jobs(&self) -> Vec<RevisionJob> {
        let items = 0..self.samples.len();
        items.flat_map(|item| (0..self.sets.len()).flat_map(move |set| self.jobs_of(item, set))).collect()
    }

    fn jobs_of(&self, item: usize, set: usize) -> Vec<RevisionJob> {
        let sample = &self.samples[item];
        let job = |primary, guidance| RevisionJob { item, set, primary, guidance, paraphrase: None };
        match (self.sets[set].kind, self.how.mode) {
            (RevisionKind::Diversified, _) => {
                let numbers = (0..sample.references.len())
                    .flat_map(|k| (0..usize::from(self.how.options.diversify)).map(move |n| (k, n)));
                numbers.map(|number| RevisionJob { paraphrase: Some(number), ..job(None, None) }).collect()
            }
            (_, Mode::Pairwise) if sample.candidates.len() != 2 => Vec::new(),
            (RevisionKind::Direct, _) => vec![job(None, None)],
            (RevisionKind::Adapted | RevisionKind::Aspects | RevisionKind::Both, Mode::Pairwise) => {
                let primary = usize::from(self.coin(item, set));
                vec![job(Some(primary), Some(1 - primary))]
            }
            _ => (0..sample.candidates.len()).map(|candidate| job(Some(candidate), None)).collect(),
        }
    }

    /// C of equation 2, drawn independently for each sample, kind and aspect.
    fn coin(&self, item: usize, set: usize) -> bool {
        let RevisionSet { kind, focus, .. } = &self.sets[set];
        let parts = ["primary", self.samples[item].id.as_str(), kind.as_str(), focus.name.as_deref().unwrap_or("")];
        rng_for(self.how.seed, &parts).random()
    }

    /// Whether all texts that the prompt requires exist.
    fn has_all_texts(&self, job: &RevisionJob) -> bool {
        let shown = self.slot_texts(job);
        let is_there = |name: &str| shown.iter().any(|(slot, text)| *slot == name && !text.trim().is_empty());
        match (job.primary, job.guidance, job.paraphrase) {
            (None, None, None) => is_there("instruction") || is_there("context"),
            (None, None, Some(_)) => is_there("reference"),
            (_, None, _) => is_there("response"),
            _ => is_there("response") && is_there("guidance"),
        }
    }

    fn slot_texts(&self, job: &RevisionJob) -> Vec<(&'static str, &'a str)> {
        let sample = &self.samples[job.item];
        let text = |candidate: usize| &*sample.candidates[candidate].text;
        let mut shown = material(sample).to_vec();
        shown.extend(job.primary.map(|candidate| ("response", text(candidate))));
        shown.extend(job.guidance.map(|candidate| ("guidance", text(candidate))));
        shown.extend(job.paraphrase.map(|(reference, _)| ("reference", &*sample.references[reference])));
        shown
    }

    /// The prompt of a job; the stage has checked that it renders.
    pub(crate) fn prompt(&self, job: &RevisionJob) -> Prompt {
        let prompt = &self.sets[job.set].prompt;
        let rendered = prompt.render(&self.samples[job.item].id, &self.slot_texts(job), &[]);
        prompt.lay_out(rendered.expect("it could be rendered before"))
    }

    fn query(&self, job: &RevisionJob) -> Query<'_> {
        let RevisionSet { kind, focus, prompt } = &self.sets[job.set];
        let sample = &self.samples[job.item];
        let candidate = job.primary.map(|candidate| sample.candidates[candidate].id.clone());
        let paraphrase = job.paraphrase.map(|(reference, number)| format!("{reference}#{number}"));
        let parts = focus.name.iter().cloned().chain(candidate).chain(paraphrase);
        let id = parts.fold(format!("{}/{kind}", sample.id), |id, part| format!("{id}/{part}"));
        Query {
            is_asked: self.has_all_texts(job),
            ..Query::new(id, &*sample.id, identity(self, *job), prompt, self.slot_texts(job))
        }
    }

    /// The stage that generates all references with this model; `params` are the method's options.
    pub(crate) fn stage<'r>(
        &'r self,
        model: &'r dyn LanguageModel,
        params: &impl Options,
    ) -> QueryStage<'r, RevisionReadout<'r, 'a>> {
        let jobs = self.jobs();
        let signature = self.sign(Signature::new(REVISIONS, model)).with_some_options(params, &READ);
        QueryStage::new(
            REVISIONS,
            model,
            jobs.iter().map(|job| self.query(job)).collect(),
            RevisionReadout { reviser: self, jobs, measures: Measures::new() },
            vec![signature.to_string()],
        )
    }

    /// The similarity of a text to the candidates shown, or to all if none was.
    fn similarity(&self, job: RevisionJob, text: &str, measures: &Measures) -> Vec<(usize, Similarity)> {
        let sample = &self.samples[job.item];
        let compared: Vec<usize> = match job.primary {
            _ if text.is_empty() => Vec::new(),
            Some(primary) => std::iter::once(primary).chain(job.guidance).collect(),
            None => (0..sample.candidates.len()).collect(),
        };
        let others: Vec<&str> = compared.iter().map(|candidate| &*sample.candidates[*candidate].text).collect();
        compared.iter().copied().zip(measures.similarities(text, &others)).collect()
    }
}

/// Reads references and measures their similarity to candidates.
pub(crate) struct RevisionReadout<'r, 'a> {
    reviser: &'r Reviser<'a>,
    jobs: Vec<RevisionJob>,
    measures: Measures,
}

impl RevisionReadout<'_, '_> {
    fn revision(&self, number: usize, made: WrittenText) -> Revision {
        let job = self.jobs[number];
        Revision { similarity: self.reviser.similarity(job, &made.text, &self.measures), made, job }
    }
}

impl Readout for RevisionReadout<'_, '_> {
    type Answer = Revision;
    const MADE_ANEW: &'static [&'static str] = &["similarity"];

    fn request(&self, number: usize, request: GenerateRequest) -> GenerateRequest {
        let RevisionSettings { max_tokens, seed, .. } = self.reviser.how;
        let RevisionJob { item, paraphrase, .. } = self.jobs[number];
        let sampling = paraphrase.map(|(reference, number)| {
            let id = &self.reviser.samples[item].id;
            let seed = seed_for(seed, &["paraphrase", id, &reference.to_string(), &number.to_string()]);
            Sampling::Random { temperature: TEMPERATURE, limits: SamplingLimits::default(), seed }
        });
        let sampling = sampling.unwrap_or(request.sampling);
        GenerateRequest { max_tokens: max_tokens as usize, sampling, ..request }
    }

    fn read_text(&self, number: usize, result: &GenerateResult) -> Revision {
        self.revision(number, WrittenText::from_result(result))
    }

    fn unasked(&self, number: usize, _: bool) -> Result<Option<Revision>, MethodError> {
        Ok(Some(Revision::without_text(self.jobs[number])))
    }

    fn rows(&self, _: usize, revision: &Revision) -> Vec<Value> {
        vec![row(self.reviser, revision)]
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<Revision, RowError> {
        Ok(self.revision(number, WrittenText::read(&rows[0])?))
    }

    fn stand_in(&self, number: usize) -> Revision {
        // Not compared with the candidates: this is slow, and meaningless for a stand-in.
        let made = WrittenText::from_result(&dry_result(number, self.reviser.how.max_tokens as usize));
        Revision { made, ..Revision::without_text(self.jobs[number]) }
    }
}

fn load(how: &RevisionSettings<'_>, kind: RevisionKind, focus: &RevisionFocus) -> Result<Template, MethodError> {
    let own: Vec<_> = how.options.reviser_template.iter().filter(|own| own.kind == kind).collect();
    if let [first, _, ..] = own.as_slice() {
        let option = format!("--reviser-template {kind}={}", first.file);
        return MethodError::refuse(option, "repeated kind", "pass one template per kind");
    }
    let name = match kind {
        RevisionKind::Adapted | RevisionKind::Aspects if how.mode == Mode::Pairwise => "adapted",
        RevisionKind::Adapted | RevisionKind::Aspects | RevisionKind::Each => "alone",
        RevisionKind::Both => "both",
        RevisionKind::Direct => "direct",
        RevisionKind::Diversified => "diversified",
    };
    let builtin = TEMPLATES.iter().find(|builtin| builtin.name == name).expect("each kind has a template");
    let RevisionFocus { comparative, criteria, .. } = focus.clone();
    let (noun, if_good) = (how.noun.to_owned(), how.options.good_draft.sentence().to_owned());
    let settings =
        BTreeMap::from([("noun", noun), ("comparative", comparative), ("criteria", criteria), ("if_good", if_good)]);
    let choice = own.first().map_or(builtin.name, |own| own.file.as_str());
    Ok(Template::load(choice, &[*builtin], settings, &how.layout)?)
}
