//! The report of `learn`.

use probity_lm::text::{counted, fixed};
use serde_json::{Map, Value, json};

use super::head_file::LearnedHead;
use super::study::{HeadStudy, WayFigures};
use super::subject::{Agreement, Subject};
use super::table::{FeaturedCandidates, GivenScores};
use crate::figures::{bounds, decimals, number};
use crate::thresholds::{FEW_UNITS, MANY_UNSCORED};
use crate::{Conclusion, Headline, MethodReport, RunScores, Signature, Table, Trust, cells, row};

/// With fewer labels the result is largely chance.
const FEW_LABELS: usize = 50;

/// An attribute with the study of its head.
pub(super) struct LearntSubject<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) study: HeadStudy,
    pub(super) head: LearnedHead,
}

impl<'a> LearntSubject<'a> {
    /// The predictions of labels by heads that were fitted without them. The label of a pair, whose first is preferred,
    /// is 1; `alpha` is the penalty of that head.
    pub(super) fn predictions(&'a self) -> impl Iterator<Item = Value> + 'a {
        (0..self.subject.labels()).map(|row| {
            row! {
                "attribute": self.subject.name(), ..self.subject.places[row], "label": self.subject.target[row],
                "predicted": self.study.predicted[row].map(|one| one.value),
                "alpha": self.study.predicted[row].map(|one| one.alpha),
                "fold": self.study.folds.part[self.subject.groups[row]],
            }
        })
    }

    /// The cross-validation and related figures.
    fn values(&self) -> Value {
        let measure = probity_options::name(&self.subject.measure);
        let HeadStudy { figures, unseen, curve, .. } = &self.study;
        let learnt = figures[0].agreement;
        let mut values = json!({
            "interval": learnt.interval, "labels": self.subject.labels(), "contexts": self.subject.contexts,
            "usable": self.head.usable, "uses": self.head.uses, "alpha": self.head.fitted.alpha, "ways": figures,
            "curve": curve, "doubling_brings": self.study.doubling(self.subject),
        });
        values[&measure] = json!(learnt.value);
        if let Some(unseen) = unseen {
            let own = unseen.ways[0].agreement;
            let mut of_unseen = json!(unseen);
            of_unseen[&measure] = json!(own.value);
            of_unseen["interval"] = json!(own.interval);
            values["unseen_systems"] = of_unseen;
        }
        values
    }

    /// The conclusion with its trust.
    fn conclusion(&self, about: Option<String>) -> Conclusion {
        let Self { subject, study, head } = self;
        let shown = |agreement: Agreement| {
            let interval = agreement.interval.map(|i| format!(" [{}, {}]", fixed(i.low, 3), fixed(i.high, 3)));
            format!("{} {}{}", subject.measure.title(), number(agreement.value), interval.unwrap_or_default())
        };
        let learnt = study.figures[0].agreement;
        let best = study.best_baseline.map(|place| &study.figures[place]);
        let from = format!("{} in {}", counted(subject.labels(), "label"), counted(subject.contexts, "context"));
        let without =
            best.map(|best| format!("; {} has {}", best.way, number(best.agreement.value))).unwrap_or_default();
        let says = if head.usable {
            format!("Learnt from {from}: {} on held-out contexts{without}", shown(learnt))
        } else {
            let best = best.expect("a head that is not used has something beside it");
            let gains = best.learnt_gains.map(|gains| {
                let ends = gains.interval.map(|i| format!(" [{}, {}]", fixed(i.low, 3), fixed(i.high, 3)));
                format!("{}{} better than", number(gains.value), ends.unwrap_or_default())
            });
            format!(
                "Learning from {from} shows no gain: {} on held-out contexts, {} {} ({}), which `learned` uses",
                shown(learnt),
                gains.as_deref().unwrap_or("no better than"),
                best.way,
                number(best.agreement.value),
            )
        };
        let all = subject.labels() + subject.without_features;
        let many_lack = subject.without_features as f64 > MANY_UNSCORED * all as f64;
        let unseen = study.unseen.as_ref().and_then(|unseen| beaten(&unseen.ways));
        let (trust, because) = match () {
            () if !head.is_clear => {
                let way = &study.figures[study.used].way;
                (Trust::Unreliable, format!("{way}: agreement with labels is not above chance"))
            }
            () if many_lack => {
                let why = format!(
                    "{} of {} belong to texts without all features",
                    subject.without_features,
                    counted(all, "label")
                );
                (Trust::Caution, why)
            }
            () if subject.labels() < FEW_LABELS => {
                let why = format!("with fewer than {FEW_LABELS} labels the result depends on the choice of labels");
                (Trust::Caution, why)
            }
            () if subject.contexts < FEW_UNITS => {
                (Trust::Caution, format!("labels from fewer than {FEW_UNITS} contexts"))
            }
            () if !head.usable => (Trust::Caution, "the head does not clearly beat the baseline".to_owned()),
            () if unseen.is_some() => {
                let (way, value) = unseen.expect("it is there");
                let why = format!("on held-out systems it is no better than {way} ({})", number(value));
                (Trust::Caution, why)
            }
            () => (Trust::Reliable, "compared with held-out labels".to_owned()),
        };
        let figures = json!({
            probity_options::name(&subject.measure): learnt.value, "interval": learnt.interval, "usable": head.usable,
            "uses": head.uses, "labels": subject.labels(), "without": best.map(|best| best.agreement.value),
        });
        Conclusion { about, says, agreement: None, trust, because, figures }
    }
}

/// A baseline that does as well as the head on held-out systems, if any.
fn beaten(ways: &[WayFigures]) -> Option<(&str, Option<f64>)> {
    let learnt = ways[0].agreement.value?;
    let others = ways[1..].iter().filter(|way| way.agreement.value.is_some_and(|value| value >= learnt));
    others.map(|way| (way.way.as_str(), way.agreement.value)).next()
}

/// Tables, figures and conclusions.
pub(super) fn report(
    learnt: &[LearntSubject<'_>],
    featured: &FeaturedCandidates,
    scores: &GivenScores,
    signature: Signature,
) -> MethodReport {
    let columns = ["attribute", "way", "figure", "value", "95% interval", "gain", "95% of gain"];
    let mut ways = Table::new("Agreement with held-out labels", columns);
    let mut unseen = Table::new("Agreement on held-out systems", columns);
    let columns = ["attribute", "labels", "contexts", "figure", "mean", "deviation", "least", "most"];
    let mut curve = Table::new("Learning curve", columns);
    let mut kept = Table::new(
        "Heads",
        ["attribute", "labels", "contexts", "scores by", "features", "penalty", "expected from twice the labels"],
    );
    let mut values = Map::new();
    for one in learnt {
        let LearntSubject { subject, study, head } = one;
        let push = |table: &mut Table, all: &[WayFigures]| {
            for of in all {
                table.push(cells![
                    subject.name().to_owned(),
                    &of.way,
                    subject.measure.title().to_owned(),
                    number(of.agreement.value),
                    bounds(of.agreement.interval),
                    number(of.learnt_gains.and_then(|gains| gains.value)),
                    bounds(of.learnt_gains.and_then(|gains| gains.interval)),
                ]);
            }
        };
        push(&mut ways, &study.figures);
        if let Some(of_unseen) = &study.unseen {
            push(&mut unseen, &of_unseen.ways);
        }
        for point in &study.curve {
            curve.push(cells![
                subject.name().to_owned(),
                point.labels,
                decimals(Some(point.contexts), 1),
                subject.measure.title().to_owned(),
                number(Some(point.mean)),
                number(Some(point.deviation)),
                number(Some(point.least)),
                number(Some(point.most)),
            ]);
        }
        let columns: usize = head.blocks.iter().map(|block| block.columns.len()).sum();
        kept.push(cells![
            subject.name().to_owned(),
            subject.labels(),
            subject.contexts,
            probity_options::name(&head.uses),
            columns,
            // A label-free baseline has no penalty.
            number((head.fitted.alpha > 0.0).then_some(head.fitted.alpha)),
            number(study.doubling(subject)),
        ]);
        let about = |note: &String| format!("{}: {note}", subject.name());
        subject.notes.iter().for_each(|note| kept.note(about(note)));
        if subject.labels() < FEW_LABELS {
            kept.note(format!(
                "{}: with fewer than {FEW_LABELS} labels the result depends on the choice of labels",
                subject.name()
            ));
        }
        if columns > subject.labels() {
            kept.note(format!(
                "{}: more features than labels, so the head also depends on the penalty",
                subject.name()
            ));
        }
        values.insert(subject.name().to_owned(), one.values());
    }
    ways.note(
        "Cross-validation by context; the penalty of each head is chosen on its training labels. The gain is paired by \
         context. `learned` scores with the head on all blocks if its gain over the best baseline (without a model or \
         without labels) has an interval above 0, else with that baseline.",
    );
    unseen.note(
        "Each candidate is predicted by a head fitted without its context and without its system; systems are held out \
         in four parts.",
    );
    curve.note(
        "Heads fitted to this many labels, drawn in whole contexts where possible, tested on all other contexts; mean, \
         standard deviation and range over draws.",
    );
    kept.note("The gain expected from twice the labels extrapolates the last points of the learning curve.");
    scores.notes.iter().for_each(|note| kept.note(note.clone()));
    let tables = [ways, unseen, curve, kept].into_iter().filter(|table| !table.rows.is_empty()).collect();
    let verdict = learnt.iter().map(|one| one.conclusion((learnt.len() > 1).then(|| one.subject.name().to_owned())));
    let headline = learnt.iter().map(|one| {
        let used = one.study.figures[one.study.used].agreement.value;
        Headline::new(one.subject.measure.title(), Some(one.subject.name()), used)
    });
    MethodReport {
        values: json!({ "featured": featured.count() }),
        tables,
        outcomes: featured.outcomes.clone(),
        headline: headline.collect(),
        verdict: verdict.collect(),
        scores: RunScores { tells_agreement: true, ..RunScores::default() },
        first_figures: [("cross_validation", values.into())].into(),
        ..MethodReport::new(signature)
    }
}
