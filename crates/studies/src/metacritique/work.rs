//! The queries of each stage.

use probity_data::{Candidate, CritiqueLabels, LabelledCritiques, Sample};
use probity_lm::LanguageModel;

use super::accuracy::{AccuracyFigures, LabelledClaim, accuracies};
use super::aius::{self, AIUS, ExtractionJob, aius};
use super::claims::{self, Claim, ClaimJudge, PRECISION, RECALL, is_true};
use super::comparing::{ComparedTexts, ComparedUnits, Comparison, PAIRWISE, REFINED_PAIRS, SINGLE, judge};
use super::options::{Baseline, MetaCritiqueParams};
use super::report::{ComparedPair, CritiqueFindings};
use super::tally::{CritiqueTally, Tally};
use super::writing::{self, REFERENCES, REFINED};
use super::{ANSWER, MetaCritique, QUESTION, REFERENCE_ANSWER, with_labels};
use crate::answer::Answer;
use crate::judge::{ShownText, UnitVerdict};
use crate::list_readout::List;
use crate::prompt_set::PromptSet;
use crate::stage::key;
use crate::written::WrittenText;
use crate::{Artefact, Method, MethodError, MethodReport, Run, Signature};

/// The name in rows for the original answer.
pub(super) const AS_IT_WAS: &str = "(answer)";

/// The inputs of all queries about the samples.
pub(super) struct MetaCritiqueWork<'a> {
    pub(super) params: &'a MetaCritiqueParams,
    pub(super) samples: &'a [Sample],
    pub(super) prompts: &'a PromptSet,
    /// The human labels by sample.
    pub(super) labelled: Option<&'a [LabelledCritiques]>,
    pub(super) model: &'a dyn LanguageModel,
}

/// The references of a sample; each may be missing.
#[derive(Debug, Clone, Default)]
struct HeldAgainst {
    answer: Option<String>,
    critique: Option<String>,
}

/// The claims of a sample's critiques.
struct SampleClaims {
    /// One per candidate, in order.
    critiques: Vec<List>,
    reference: Option<List>,
}

impl SampleClaims {
    /// The reference's claims to look for in this critique; none for an empty one.
    fn held_against(&self, critique: &Candidate) -> &[String] {
        let of_reference = self.reference.as_ref().map_or(&[][..], |aius| &aius.entries);
        if critique.text.trim().is_empty() { &[] } else { of_reference }
    }
}

impl MetaCritiqueWork<'_> {
    pub(super) fn run(&self, run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let signature = with_labels(Signature::new(MetaCritique::NAME, self.model), self.labelled);
        let signature = ["answer", "critique", "aius", "precision", "recall"]
            .into_iter()
            .chain(self.params.refine.then_some("refined"))
            .fold(signature, |signature, name| self.prompts.get(name).sign(signature));
        let mut findings = CritiqueFindings::new(self.params, self.samples);
        let (against, references) = self.references(run, &mut findings)?;
        let (claims, aius) = self.claims(&against, &references, run, &mut findings)?;
        let precision = self.decide(PRECISION, self.own_claims(&against, &claims), &aius, run)?;
        let recall = self.decide(RECALL, self.reference_claims(&claims), &aius, run)?;
        self.tally(&claims, &precision.parts, &recall.parts, &mut findings);
        let signature = self.baselines(signature, run, &mut findings)?;
        let signature = self.refine(signature, run, &mut findings)?;
        findings.report(signature, run)
    }

    /// The inputs that a stage's parts depend on: the model, these options and prompts, and earlier artefacts.
    fn inputs(&self, stage: &'static str, options: &[&str], prompts: &[&str], keys: &[&str]) -> Vec<String> {
        let signature = Signature::new(stage, self.model).with_some_options(self.params, options);
        let signature = prompts.iter().fold(signature, |signature, name| self.prompts.get(name).sign(signature));
        std::iter::once(signature.to_string()).chain(keys.iter().map(|key| (*key).to_owned())).collect()
    }

    /// The references in the data, completed by generated ones.
    fn references(
        &self,
        run: &mut Run<'_>,
        findings: &mut CritiqueFindings<'_>,
    ) -> Result<(Vec<HeldAgainst>, String), MethodError> {
        let mut against: Vec<HeldAgainst> = self.samples.iter().map(|sample| self.held_against(sample)).collect();
        let (mut queries, mut places) = (Vec::new(), Vec::new());
        for (item, (sample, held)) in self.samples.iter().zip(&against).enumerate() {
            let text = |name: &'static str| (name, sample.text(name).unwrap_or_default());
            let mut wanted = Vec::new();
            if held.answer.is_none() && !self.params.without_reference_answer {
                wanted.push(("answer", vec![text(QUESTION)]));
            }
            // Human labels refer to the claims of the reference that people saw.
            if held.critique.is_none() && self.labelled.is_none() {
                wanted.push(("critique", vec![text(QUESTION), text(ANSWER)]));
            }
            for (kind, slots) in wanted {
                queries.push(writing::query(&sample.id, ("reference", kind), self.prompts.get(kind), slots));
                places.push((item, kind));
            }
        }
        let inputs = self.inputs(REFERENCES, &["max-tokens", "without-reference-answer"], &["answer", "critique"], &[]);
        let stage = writing::stage(REFERENCES, queries, self.params.max_tokens, self.model, inputs);
        let written = run.stage(&stage)?;
        for ((item, kind), text) in places.into_iter().zip(&written.parts) {
            findings.outcomes.add_named(text.outcome());
            let slot = if kind == "answer" { &mut against[item].answer } else { &mut against[item].critique };
            *slot = text.usable().map(str::to_owned);
        }
        findings.written_references = if run.came_from_file(REFERENCES) { 0 } else { written.parts.len() };
        Ok((against, written.key))
    }

    fn held_against(&self, sample: &Sample) -> HeldAgainst {
        let answer = sample.text(REFERENCE_ANSWER).filter(|_| !self.params.without_reference_answer);
        let critique = sample.references.iter().find(|reference| !reference.trim().is_empty());
        HeldAgainst { answer: answer.map(str::to_owned), critique: critique.map(ToString::to_string) }
    }

    /// The claims of all critiques, from the human labels if available, else split by the model.
    fn claims(
        &self,
        against: &[HeldAgainst],
        references: &str,
        run: &mut Run<'_>,
        findings: &mut CritiqueFindings<'_>,
    ) -> Result<(Vec<SampleClaims>, String), MethodError> {
        if let Some(labelled) = self.labelled {
            let claims = labelled.iter().map(labelled_claims).collect::<Result<_, _>>()?;
            let signature = with_labels(Signature::new(AIUS, self.model), self.labelled);
            return Ok((claims, key(AIUS, [references, &signature.to_string()])));
        }
        let mut jobs = Vec::new();
        for (sample, held) in self.samples.iter().zip(against) {
            let job = |candidate, critique| ExtractionJob { item: &sample.id, candidate, critique };
            jobs.extend(sample.candidates.iter().map(|one| job(Some(one.id.as_str()), &*one.text)));
            jobs.extend(held.critique.as_deref().map(|critique| job(None, critique)));
        }
        let (tokens, most) = (self.params.max_tokens, self.params.most_aius as usize);
        let inputs = self.inputs(AIUS, &["max-tokens", "most-aius"], &["aius"], &[references]);
        let stage = aius::stage(&jobs, self.prompts.get("aius"), (tokens, most), self.model, inputs);
        let Artefact { parts, key } = run.stage(&stage)?;
        let mut parts = parts.into_iter();
        let mut claims = Vec::with_capacity(self.samples.len());
        for (sample, held) in self.samples.iter().zip(against) {
            let critiques: Vec<List> = parts.by_ref().take(sample.candidates.len()).collect();
            let reference = held.critique.is_some().then(|| parts.next()).flatten();
            for aius in critiques.iter().chain(&reference) {
                findings.outcomes.add_named(aius.ended.counted());
                findings.repeated += aius.repeated;
            }
            if reference.is_none() {
                findings.outcomes.add_named("no_reference");
            }
            claims.push(SampleClaims { critiques, reference });
        }
        Ok((claims, key))
    }

    /// The claims of all critiques, to be checked against question, answer and reference answer.
    fn own_claims<'c>(&'c self, against: &'c [HeldAgainst], claims: &'c [SampleClaims]) -> Vec<Claim<'c>> {
        let mut all = Vec::new();
        for ((sample, held), own) in self.samples.iter().zip(against).zip(claims) {
            let text = |name: &'static str| (name, sample.text(name).unwrap_or_default());
            let reference = held.answer.as_deref().map(|answer| (REFERENCE_ANSWER, answer));
            let slots: Vec<_> = [text(QUESTION), text(ANSWER)].into_iter().chain(reference).collect();
            for (candidate, aius) in sample.candidates.iter().zip(&own.critiques) {
                all.extend(aius.entries.iter().enumerate().map(|(number, aiu)| Claim {
                    item: &sample.id,
                    candidate: &candidate.id,
                    number,
                    aiu,
                    slots: slots.clone(),
                }));
            }
        }
        all
    }

    /// The claims of all references, to be looked for in each critique.
    fn reference_claims<'c>(&'c self, claims: &'c [SampleClaims]) -> Vec<Claim<'c>> {
        let mut all = Vec::new();
        for (sample, own) in self.samples.iter().zip(claims) {
            for candidate in &sample.candidates {
                all.extend(own.held_against(candidate).iter().enumerate().map(|(number, aiu)| Claim {
                    item: &sample.id,
                    candidate: &candidate.id,
                    number,
                    aiu,
                    slots: vec![("critique", &*candidate.text)],
                }));
            }
        }
        all
    }

    /// Decides claims; the prompt has the stage's name.
    fn decide(
        &self,
        name: &'static str,
        claims: Vec<Claim<'_>>,
        aius: &str,
        run: &mut Run<'_>,
    ) -> Result<Artefact<Answer<usize>>, MethodError> {
        let MetaCritiqueParams { verdict, rationale_tokens, .. } = *self.params;
        let judge = ClaimJudge { prompt: self.prompts.get(name), model: self.model, verdict, tokens: rationale_tokens };
        let inputs = self.inputs(name, &["verdict", "rationale-tokens", "without-reference-answer"], &[name], &[aius]);
        run.stage(&claims::stage(name, claims, &judge, inputs)?)
    }

    /// Tallies the labels of each critique, and their agreement with human labels if available.
    fn tally(
        &self,
        claims: &[SampleClaims],
        precision: &[Answer<usize>],
        recall: &[Answer<usize>],
        findings: &mut CritiqueFindings<'_>,
    ) {
        for verdict in precision.iter().chain(recall) {
            findings.decided(verdict);
        }
        let (mut precision, mut recall) = (precision.iter(), recall.iter());
        let (mut own_labels, mut reference_labels) = (Vec::new(), Vec::new());
        for (item, (sample, own)) in self.samples.iter().zip(claims).enumerate() {
            for (place, candidate) in sample.candidates.iter().enumerate() {
                let said: Vec<Option<bool>> =
                    precision.by_ref().take(own.critiques[place].entries.len()).map(is_true).collect();
                let covered: Vec<Option<bool>> =
                    recall.by_ref().take(own.held_against(candidate).len()).map(is_true).collect();
                if let Some(labelled) = self.labelled {
                    let CritiqueLabels { precision, recall, .. } = &labelled[item].critiques[place];
                    let claim = |(&gold, &said): (&bool, &Option<bool>)| LabelledClaim {
                        item,
                        system: &candidate.id,
                        gold,
                        said,
                    };
                    own_labels.extend(precision.iter().zip(&said).map(claim));
                    reference_labels.extend(recall.iter().zip(&covered).map(claim));
                }
                findings
                    .tallies
                    .push(CritiqueTally { precision: Tally::from_labels(said), recall: Tally::from_labels(covered) });
            }
        }
        let by_task = [("precision", own_labels), ("recall", reference_labels)];
        let figures: Vec<AccuracyFigures> =
            by_task.iter().flat_map(|(task, labels)| accuracies(task, labels)).collect();
        findings.accuracy = figures;
    }

    /// Judges whole critiques, as the baselines do.
    fn baselines(
        &self,
        signature: Signature,
        run: &mut Run<'_>,
        findings: &mut CritiqueFindings<'_>,
    ) -> Result<Signature, MethodError> {
        let mut signature = signature;
        if self.params.has(Baseline::Single) {
            let text = |item: usize| {
                self.samples[item].candidates.iter().map(move |one| ComparedTexts {
                    item,
                    first: ShownText { name: &one.id, text: &one.text },
                    second: None,
                })
            };
            let units: Vec<ComparedTexts<'_>> = (0..self.samples.len()).flat_map(text).collect();
            let settled = self.compare(&SINGLE, &units, &[], &mut signature, run, findings)?;
            findings.single = Some(settled.iter().map(|unit| unit.decided.rating()).collect());
        }
        if self.params.has(Baseline::Pairwise) {
            let (mut units, mut places) = (Vec::new(), Vec::new());
            for (item, sample) in self.samples.iter().enumerate() {
                let text = |k: usize| ShownText { name: &sample.candidates[k].id, text: &sample.candidates[k].text };
                for (a, b) in pairs(sample.candidates.len()) {
                    units.push(ComparedTexts { item, first: text(a), second: Some(text(b)) });
                    places.push(ComparedPair { item, first: a, second: Some(b), p: None });
                }
            }
            let settled = self.compare(&PAIRWISE, &units, &[], &mut signature, run, findings)?;
            places.iter_mut().zip(&settled).for_each(|(place, unit)| place.p = said_of(unit));
            findings.pairwise = Some(places);
        }
        Ok(signature)
    }

    /// Refines answers with the critiques, and compares them with the original and with each other.
    fn refine(
        &self,
        signature: Signature,
        run: &mut Run<'_>,
        findings: &mut CritiqueFindings<'_>,
    ) -> Result<Signature, MethodError> {
        let mut signature = signature;
        if !self.params.refine {
            return Ok(signature);
        }
        let mut queries = Vec::new();
        for sample in self.samples {
            let text = |name: &'static str| (name, sample.text(name).unwrap_or_default());
            queries.extend(sample.candidates.iter().map(|candidate| {
                let slots = vec![text(QUESTION), text(ANSWER), ("critique", &*candidate.text)];
                writing::query(&sample.id, ("candidate", &candidate.id), self.prompts.get("refined"), slots)
            }));
        }
        let inputs = self.inputs(REFINED, &["max-tokens"], &["refined"], &[]);
        let stage = writing::stage(REFINED, queries, self.params.max_tokens, self.model, inputs);
        let Artefact { parts, key } = run.stage(&stage)?;
        for text in &parts {
            findings.outcomes.add_named(text.outcome());
        }
        let (mut units, mut places) = (Vec::new(), Vec::new());
        let mut rest: &[WrittenText] = &parts;
        for (item, sample) in self.samples.iter().enumerate() {
            let (own, after) = rest.split_at(sample.candidates.len());
            rest = after;
            let text =
                |k: usize| ShownText { name: &sample.candidates[k].id, text: own[k].usable().unwrap_or_default() };
            let answer = ShownText { name: AS_IT_WAS, text: sample.text(ANSWER).unwrap_or_default() };
            for k in 0..own.len() {
                units.push(ComparedTexts { item, first: text(k), second: Some(answer) });
                places.push(ComparedPair { item, first: k, second: None, p: None });
            }
            for (a, b) in pairs(own.len()) {
                units.push(ComparedTexts { item, first: text(a), second: Some(text(b)) });
                places.push(ComparedPair { item, first: a, second: Some(b), p: None });
            }
        }
        let settled = self.compare(&REFINED_PAIRS, &units, &[&key], &mut signature, run, findings)?;
        places.iter_mut().zip(&settled).for_each(|(place, unit)| place.p = said_of(unit));
        findings.refined = Some(places);
        Ok(signature)
    }

    fn compare(
        &self,
        comparison: &Comparison,
        units: &[ComparedTexts<'_>],
        keys: &[&str],
        signature: &mut Signature,
        run: &mut Run<'_>,
        findings: &mut CritiqueFindings<'_>,
    ) -> Result<Vec<UnitVerdict>, MethodError> {
        let judge = judge(comparison, self.params, self.prompts, self.model)?;
        let shown: Vec<Sample> = self.samples.iter().map(comparison.shown).collect();
        let own = judge.signature(comparison.name);
        let inputs = std::iter::once(own.to_string()).chain(keys.iter().map(|key| (*key).to_owned())).collect();
        let compared = ComparedUnits::new(comparison.name, &shown, units);
        let verdicts = run.stage(&compared.stage(comparison.name, &judge, inputs))?.parts;
        for verdict in &verdicts {
            findings.outcomes.add(&verdict.decided.outcome);
        }
        // The judge's own settings would be mistaken for those of claims; only its prompts are signed.
        for mark in own.templates {
            *signature = signature.clone().with_template(&mark.name, &mark.sha256);
        }
        Ok(compared.settle(&verdicts, self.params.verdict.verdict_mode().has_labels()))
    }
}

/// The preference for the first of a pair; ½ if it changes with presentation order, whatever the certainty.
fn said_of(unit: &UnitVerdict) -> Option<f64> {
    if unit.turns() == Some(true) { Some(0.5) } else { unit.decided.p() }
}

/// All pairs of `count` items.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)))
}

/// The claims that people labelled. Labels without claims cannot be compared with the judge's.
fn labelled_claims(labelled: &LabelledCritiques) -> Result<SampleClaims, MethodError> {
    let candidates = &labelled.sample.candidates;
    let lacks = |one: &CritiqueLabels| {
        (one.aius.is_empty() && !one.precision.is_empty()) || (labelled.reference.is_empty() && !one.recall.is_empty())
    };
    if let Some((candidate, _)) = candidates.iter().zip(&labelled.critiques).find(|(_, one)| lacks(one)) {
        let why = format!(
            "the critique `{}` of sample `{}` has labels, but the file lacks its claims",
            candidate.id.escape_debug(),
            labelled.sample.id.escape_debug()
        );
        return MethodError::refuse("--labels", why, "add the claims as `aius`, or omit --model");
    }
    Ok(SampleClaims {
        critiques: labelled.critiques.iter().map(|one| aius(one.aius.clone())).collect(),
        reference: (!labelled.reference.is_empty()).then(|| aius(labelled.reference.clone())),
    })
}
