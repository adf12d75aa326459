//! What a run says, how far that can be trusted, and why: what anybody reads first.

use std::fmt;

use probity_data::{Preference, Sample};
use probity_lm::text::{counted, fixed, thousands};
use probity_metrics::Direction;
use probity_options::name;
use probity_stats::{
    AgreementFigures, CONFIDENCE, ChoiceAccuracy, ChoicePoint, FigureEstimate, Interval, NoInterval, SystemScore,
    choice_point, equalised, order,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smart_default::SmartDefault;

use carried::Carried;

use crate::figures::mean;

/// Verdicts that turn with the order in more than this share of pairs say nothing but which place they like.
// docs/trust.md tells readers this number and those below.
const MOST_TURN: f64 = 0.5;
/// More than this, and the order has a good part in the verdict.
const MANY_TURN: f64 = 0.2;
/// The same for answers in which the model hardly considers the labels.
const MOST_LOW: f64 = 0.5;
const MANY_LOW: f64 = 0.1;
/// What was left unscored in more than this share was not held against people, and what that is, is no accident: texts
/// that are too long, answers that cannot be read.
const MANY_UNSCORED: f64 = 0.1;
/// Agreement with gold below these is weak: a correlation, and so much of the way from chance to all right, which is
/// 60 % between two. The whole interval must lie above, so that the word excludes the same at any number of contexts:
/// a point estimate of ten contexts is above where the truth is far below as often as not.
const WEAK_CORRELATION: f64 = 0.3;
const WEAK_ABOVE_CHANCE: f64 = 0.2;
/// Agreement over fewer contexts is a beginning.
const FEW_CONTEXTS: usize = 10;
/// A difference with a greater p may be chance.
const SIGNIFICANT: f64 = 0.05;

/// What a run says of one attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The attribute, or what else it is about; absent where there is one alone.
    pub about: Option<String>,
    /// In a sentence: who won, where systems are compared; else what was found.
    pub says: String,
    /// Behind who won: how the scores agree with labels. Absent without labels, and where `says` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
    /// How far to trust it.
    pub trust: Trust,
    /// Why no further.
    pub because: String,
    /// The figures behind the sentence.
    pub figures: Value,
}

/// How far to trust a conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// It was held against gold scores or preferences, and is clear of chance and of weak agreement.
    Reliable,
    /// It may hold; see why.
    Caution,
    /// It does not tell anything about the texts.
    Unreliable,
}

impl Conclusion {
    /// Where nothing that was scored can be held against what people said.
    pub fn without_agreement() -> Self {
        Self {
            about: None,
            says: "No verdict: no figure of agreement with people is defined".to_owned(),
            agreement: None,
            trust: Trust::Unreliable,
            because: "there is nothing to trust; the tables say why".to_owned(),
            figures: json!({}),
        }
    }

    fn winner_text(&self) -> Option<&str> {
        self.agreement.as_ref().map(|_| self.says.as_str())
    }

    fn agreement_text(&self) -> &str {
        self.agreement.as_ref().unwrap_or(&self.says)
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

/// What speaks against scores in the answers that they were made from, whatever people say of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerDoubts {
    /// The share of pairs whose verdict turns with the order, and how many pairs were seen in both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turned: Option<(f64, usize)>,
    /// The share of comparisons that the text shown first wins, where no pair was seen in both orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wins: Option<f64>,
    /// The share of answers in which the model hardly considers the labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_mass: Option<f64>,
}

impl AnswerDoubts {
    /// Under which name a conclusion's figures have them.
    const FIELD: &'static str = "answers";

    /// Those that a run's conclusion about `attribute` tells of; of a run that concludes about one thing alone, its own.
    pub fn of_run(verdict: &[Conclusion], attribute: Option<&str>) -> Self {
        let about = |one: &&Conclusion| one.about.as_deref() == attribute;
        let found = verdict.iter().find(about).or(if let [only] = verdict { Some(only) } else { None });
        let told = found.and_then(|one| serde_json::from_value(one.figures[Self::FIELD].clone()).ok());
        told.unwrap_or_default()
    }
}

/// How scores are held against what people said.
#[derive(Debug, Clone, Copy)]
pub struct AgreementCase {
    /// The share of what people judged that has no score, where it is known.
    pub unscored: Option<f64>,
    /// What speaks against the scores besides.
    pub answers: AnswerDoubts,
    /// Of the intervals.
    pub confidence: f64,
}

/// What a conclusion is drawn from.
#[derive(SmartDefault)]
pub(crate) struct ConclusionCase<'a> {
    pub(crate) about: Option<String>,
    pub(crate) samples: &'a [Sample],
    /// By sample and candidate; higher is better, whatever the scores' own direction is.
    pub(crate) scores: &'a [Vec<Option<f64>>],
    /// What gave the scores, in a word.
    #[default("judge")]
    pub(crate) judge: &'static str,
    /// In which direction the scores themselves get better; means are told as they are.
    pub(crate) direction: Direction,
    /// Agreement with gold scores.
    pub(crate) gold: Option<&'a AgreementFigures>,
    /// Of which attribute these gold scores are.
    pub(crate) attribute: Option<&'a str>,
    /// The candidates with gold, context by context, where they are not in samples.
    pub(crate) contexts: Option<&'a [Vec<SystemScore<'a>>]>,
    /// The same of the scores before debiasing, where `gold` is of debiased ones.
    pub(crate) as_judged: Option<&'a AgreementFigures>,
    /// Whether preferences in the samples may be looked at.
    pub(crate) preferences: bool,
    pub(crate) answers: AnswerDoubts,
    /// The share without a score of what people judged; of the candidates, where it is not known.
    pub(crate) unscored: Option<f64>,
    /// Of the intervals.
    #[default(CONFIDENCE)]
    pub(crate) confidence: f64,
}

/// What agreement with gold scores says of whoever gave the scores; nothing where no correlation is defined.
pub fn agreement_with_gold(
    figures: &AgreementFigures,
    contexts: &[Vec<SystemScore<'_>>],
    case: AgreementCase,
) -> Option<Conclusion> {
    ConclusionCase { gold: Some(figures), contexts: Some(contexts), ..ConclusionCase::from(case) }.agreement()
}

impl From<AgreementCase> for ConclusionCase<'_> {
    fn from(case: AgreementCase) -> Self {
        let AgreementCase { unscored, answers, confidence } = case;
        Self { answers, unscored, confidence, ..Self::default() }
    }
}

/// The same of preferences, one choice of each sample.
pub fn agreement_with_preferences(choices: &[ChoicePoint], case: AgreementCase) -> Option<Conclusion> {
    Some(ConclusionCase::from(case).concluded(accuracy(choices, case.confidence, "metric")?))
}

/// One conclusion about several metrics: which agree best with people, how surely, and which is next. Each has been
/// held against the same gold, and is called by what its conclusion is about; nothing where there is none. `parts` are
/// the same figures of what metrics tell beside their own number, such as a recall.
pub fn best_agreement(about: Option<&str>, found: Vec<Conclusion>, parts: &[(String, f64)]) -> Option<Conclusion> {
    let agreement = |one: &Conclusion| {
        let value = ["spearman", "accuracy"].iter().find_map(|figure| one.figures[*figure].as_f64());
        value.unwrap_or(f64::NEG_INFINITY)
    };
    let agrees = |one: &Conclusion| one.trust != Trust::Unreliable && !one.figures["interval"].is_null();
    let name = |one: &Conclusion| one.about.clone().unwrap_or_default();
    // What rounding alone tells apart is level.
    let values = equalised(&found.iter().map(agreement).collect::<Vec<_>>());
    let mut ranked: Vec<(f64, Conclusion)> = values.into_iter().zip(found).collect();
    // By name where they are level, so that the sentence does not depend on the order of the files.
    ranked.sort_by(|(a_value, a), (b_value, b)| {
        let level = agrees(b).cmp(&agrees(a)).then(b_value.total_cmp(a_value));
        level.then_with(|| a.about.cmp(&b.about))
    });
    let (best_value, best) = ranked.first()?;
    let is_level = |(value, one): &&(f64, Conclusion)| value == best_value && agrees(one) == agrees(best);
    let level = ranked.iter().take_while(is_level).count();
    let (all, clear) = (ranked.len(), ranked.iter().filter(|(_, one)| agrees(one)).count());
    let names: Vec<String> = ranked[..level].iter().map(|(_, one)| name(one)).collect();
    let (is, s, level_text) = if level == 1 { ("is", "s", "") } else { ("are", "", ", and are level") };
    let first = match clear {
        0 => format!(
            "None of {all} metrics is known to agree with people beyond chance; first {is} {}{level_text}",
            names.join(", ")
        ),
        _ => format!("Of {all} metrics {} agree{s} best with people{level_text}", names.join(", ")),
    };
    let of_first = if level == 1 { String::new() } else { format!("{}: ", name(best)) };
    let next = ranked.get(level).map(|(_, next)| {
        let value = agreement(next);
        let value = if value.is_finite() { format!(" with {}", fixed(value, 3)) } else { String::new() };
        format!(". Next is {}{value}", name(next))
    });
    let others = if clear > 0 { format!("; {clear} of {all} agree beyond chance") } else { String::new() };
    let better = parts.iter().filter(|(_, value)| order(*value, *best_value).is_gt());
    let better = better.max_by(|(a_name, a), (b_name, b)| a.total_cmp(b).then_with(|| b_name.cmp(a_name)));
    let better = better
        .map(|(part, value)| format!(". Of the parts of metrics {part} is better, with {}", fixed(*value, 3)))
        .unwrap_or_default();
    let (about, winner, says) = if all == 1 {
        let about = about.into_iter().chain(best.about.as_deref()).collect::<Vec<_>>().join(", ");
        (about, best.winner_text().map(str::to_owned), format!("{}{better}", best.agreement_text()))
    } else {
        let of_best = best.agreement_text();
        let says = format!("{first}. {of_first}{of_best}{}{others}{better}", next.unwrap_or_default());
        let winner = best.winner_text().map(|winner| format!("By {}: {winner}", name(best)));
        (about.unwrap_or_default().to_owned(), winner, says)
    };
    let (says, agreement) = winner.map_or((says.clone(), None), |winner| (winner, Some(says)));
    let about = Some(about).filter(|about| !about.is_empty());
    // The best of many is clear of chance more often than one that was named before: Bonferroni's bound.
    let by_selection = best.figures["p"].as_f64().filter(|p| p * all as f64 > SIGNIFICANT);
    let (trust, because) = match by_selection {
        Some(p) if best.trust == Trust::Reliable && all > 1 => {
            let why = format!("the best of {all} may be there by chance: p {} times {all}", fixed(p, 4));
            (Trust::Caution, why)
        }
        _ => (best.trust, best.because.clone()),
    };
    let found: Vec<Conclusion> = ranked.into_iter().map(|(_, one)| one).collect();
    Some(Conclusion { about, says, agreement, trust, because, figures: json!({ "best_first": found }) })
}

/// What is said, and what speaks against it: nothing where it was held against gold and is clear of chance.
struct Finding {
    says: String,
    /// What is said instead where the judge is not to be believed.
    unbelieved: Option<String>,
    figures: Value,
    doubt: Doubt,
}

impl Finding {
    fn new(says: impl Into<String>, figures: Value, doubt: Doubt) -> Self {
        Self { says: says.into(), unbelieved: None, figures, doubt }
    }

    fn says_under(self, trust: Trust) -> String {
        self.unbelieved.filter(|_| trust == Trust::Unreliable).unwrap_or(self.says)
    }
}

enum Doubt {
    /// It was held against gold scores or preferences, and is clear of chance.
    None,
    Caution(String),
    Unreliable(String),
}

impl ConclusionCase<'_> {
    /// What a reader should know first: who won, and how the scores agree with labels.
    pub(crate) fn conclusion(&self) -> Conclusion {
        self.labelled().unwrap_or_else(|| self.concluded(self.winner().unwrap_or_else(|| self.nothing_compared())))
    }

    /// The same where there are labels.
    pub(crate) fn labelled(&self) -> Option<Conclusion> {
        let mut found = self.agreement()?;
        let Some(winner) = self.winner() else { return Some(found) };
        if let (Some(all), Value::Object(more)) = (found.figures.as_object_mut(), &winner.figures) {
            all.extend(more.clone());
        }
        let winner = winner.says_under(found.trust);
        found.agreement = Some(std::mem::replace(&mut found.says, winner));
        Some(found)
    }

    /// What people's judgement says of the scores, where there is any.
    fn agreement(&self) -> Option<Conclusion> {
        // Gold scores before preferences: the first that can be had says most.
        Some(self.concluded(self.correlation().or_else(|| self.preference())?))
    }

    fn concluded(&self, said: Finding) -> Conclusion {
        let (trust, because) = self.trust(&said);
        let mut figures = said.figures.clone();
        let says = said.says_under(trust);
        if self.answers != AnswerDoubts::default() {
            figures[AnswerDoubts::FIELD] = json!(self.answers);
        }
        Conclusion { about: self.about.clone(), says, agreement: None, trust, because, figures }
    }

    /// What agrees with gold in spite of places or of labels that are hardly considered has some worth, which was shown;
    /// else these outweigh a caution and a clear interval alike: what was measured then is places, or next to nothing.
    fn trust(&self, said: &Finding) -> (Trust, String) {
        let held = matches!(said.doubt, Doubt::None);
        let turns = self.answers.turned.map(|(share, pairs)| {
            (share, format!("the verdict turns with the order in {} of {}", percent(share), counted(pairs, "pair")))
        });
        // Twice as far from one half as one half is from the end: what turns with the order, seen from one side.
        let by_place = self.answers.first_wins.map(|share| {
            let why = format!("no pair was seen in both orders, and the text shown first wins {}", percent(share));
            (2.0 * (share - 0.5).abs(), why)
        });
        // Pairs seen in both orders come first: the share won by the first place also follows which texts stood there.
        let turns = turns.or(by_place);
        let low = self
            .answers
            .low_mass
            .map(|share| (share, format!("in {} of answers the model hardly considers the labels", percent(share))));
        let unscored = self.unscored.or_else(|| self.without_score());
        let unscored =
            unscored.map(|share| (share, format!("{} of what was to be scored has no score", percent(share))));
        let above = |found: &Option<(f64, String)>, limit: f64| found.as_ref().is_some_and(|(share, _)| *share > limit);
        let most = above(&turns, MOST_TURN) || above(&low, MOST_LOW);
        let many = above(&turns, MANY_TURN) || above(&low, MANY_LOW) || above(&unscored, MANY_UNSCORED);
        let trust = match said.doubt {
            Doubt::Unreliable(_) => Trust::Unreliable,
            _ if most => {
                if held {
                    Trust::Caution
                } else {
                    Trust::Unreliable
                }
            }
            Doubt::None if !many => Trust::Reliable,
            Doubt::None | Doubt::Caution(_) => Trust::Caution,
        };
        if trust == Trust::Reliable {
            let order = turns.map(|(_, why)| format!(", and {why}")).unwrap_or_default();
            return (trust, format!("it was held against gold, and the interval is clear of chance{order}"));
        }
        let turns = turns.filter(|(share, _)| *share > MANY_TURN);
        let low = low.filter(|(share, _)| *share > MANY_LOW);
        let unscored = unscored.filter(|(share, _)| *share > MANY_UNSCORED);
        let causes: Vec<String> = turns.into_iter().chain(low).chain(unscored).map(|(_, why)| why).collect();
        let because = match &said.doubt {
            Doubt::None => causes.join("; "),
            Doubt::Caution(why) | Doubt::Unreliable(why) if causes.is_empty() => why.clone(),
            Doubt::Caution(why) => format!("{}; {why}", causes.join("; ")),
            Doubt::Unreliable(why) => format!("{}, and {why}", causes.join("; ")),
        };
        (trust, because)
    }

    fn correlation(&self) -> Option<Finding> {
        let figures = self.gold?;
        let found = figures.spearman.per_context;
        // Where scores are constant in every context that could tell, the mean is 0 by rule, and has no interval.
        let constant = found.figure.contexts > 0 && found.figure.constant_predictions == found.figure.contexts;
        if constant || self.is_level() {
            let says = "No agreement with gold: the candidates of each sample have equal scores";
            let doubt = Doubt::Unreliable("equal scores say nothing about the texts".to_owned());
            return Some(Finding::new(says, json!({ "spearman": null, "interval": null }), doubt));
        }
        // Samples of one candidate have no order within them: then over all scores.
        let pooled = figures.spearman.pooled;
        let (name, estimate) = match found.figure.mean {
            Some(mean) => ("contexts", found.of((mean, found.figure.contexts))),
            None => ("scores", pooled.of((pooled.figure.coefficient?, pooled.figure.n))),
        };
        let FigureEstimate { figure: (value, n), interval, no_interval, p } = estimate;
        let over = match (name, n) {
            ("contexts", 1) => "in the one context".to_owned(),
            ("contexts", _) => format!("mean over {}", counted(n, "context")),
            _ => format!("over all {}", counted(n, "score")),
        };
        let doubt = match interval {
            // Chance is looked for before few contexts: an interval that holds 0 says enough, however few they were.
            Some(Interval { low, high }) if low <= 0.0 && high >= 0.0 => {
                Doubt::Unreliable("the interval contains 0, which is chance".to_owned())
            }
            Some(Interval { high, .. }) if high < 0.0 => Doubt::Unreliable("it orders texts against gold".to_owned()),
            None if n < 2 => Doubt::Caution(format!("there are too few {name} for an interval")),
            None => Doubt::Caution(match no_interval {
                Some(why) if why != NoInterval::AllAlike => format!("there is no interval: {why}"),
                _ => format!("there is no interval: all {name} are alike"),
            }),
            Some(_) if n < FEW_CONTEXTS => {
                Doubt::Caution(format!("it was held against gold in only {}", counted(n, name.trim_end_matches('s'))))
            }
            Some(_) if value < WEAK_CORRELATION => Doubt::Caution("it agrees with gold, though weakly".to_owned()),
            Some(Interval { low, .. }) if low < WEAK_CORRELATION => {
                Doubt::Caution(may_be_weak(&fixed(low, 3), &fixed(WEAK_CORRELATION, 1)))
            }
            Some(_) => Doubt::None,
        };
        let carried = if name == "contexts" { self.carried(value, interval) } else { None };
        let doubt = match (doubt, &carried) {
            (Doubt::None, Some(Carried { why, .. })) => Doubt::Caution(why.clone()),
            (Doubt::Caution(other), Some(Carried { why, .. })) => Doubt::Caution(format!("{other}; {why}")),
            (doubt, _) => doubt,
        };
        let agrees = match doubt {
            Doubt::Unreliable(_) if interval.is_some_and(|interval| interval.high < 0.0) => "Disagrees with gold",
            Doubt::Unreliable(_) => "No agreement with gold beyond chance",
            _ if interval.is_none() => "Too little to say whether it agrees with gold",
            _ => "Agrees with gold",
        };
        let pairs = figures.pairwise;
        let count = pairs.correct + pairs.wrong + pairs.tied;
        let right = pairs.accuracy;
        let right = right.map(|share| format!("; right on {} of {}", percent(share), counted(count, "pair")));
        let right = right.unwrap_or_default();
        let as_judged = self.as_judged.and_then(|figures| match name {
            "contexts" => figures.spearman.per_context.figure.mean,
            _ => figures.spearman.pooled.figure.coefficient,
        });
        let debiased = as_judged.map(|value| format!(", debiased; as judged {}", fixed(value, 3))).unwrap_or_default();
        let (spearman, interval_text) = (fixed(value, 3), bracket(interval, self.confidence));
        let says = format!("{agrees}: Spearman {spearman}{interval_text} ({over}{debiased}){right}");
        let mut figures = json!({
            "spearman": value, "interval": interval, "p": p, "over": name, "n": n, "pairwise_accuracy": pairs.accuracy, "pairs": count,
        });
        if let Some(as_judged) = as_judged {
            figures["spearman_as_judged"] = json!(as_judged);
        }
        if let Some(Carried { without, .. }) = carried {
            figures["without_systems"] = json!(without);
        }
        Some(Finding::new(says, figures, doubt))
    }

    /// Over samples whose preferred candidate and its best rival have scores.
    fn preference(&self) -> Option<Finding> {
        if !self.preferences {
            return None;
        }
        let of_sample = |(sample, scores): (&Sample, &Vec<Option<f64>>)| {
            let Some(Preference::Candidate(id)) = &sample.preference else { return None };
            let own = sample.candidates.iter().position(|candidate| candidate.id == *id)?;
            choice_point(scores, own)
        };
        let choices: Vec<ChoicePoint> = self.samples.iter().zip(self.scores).filter_map(of_sample).collect();
        accuracy(&choices, self.confidence, self.judge)
    }

    /// The share of candidates without a score.
    fn without_score(&self) -> Option<f64> {
        mean(self.scores.iter().flatten().map(|score| f64::from(u8::from(score.is_none()))))
    }

    /// Whether no sample's candidates are told apart; where each has one alone, there is nothing to tell apart.
    fn is_level(&self) -> bool {
        let several: Vec<Vec<f64>> =
            self.scores.iter().map(|scores| scores.iter().flatten().copied().collect()).collect();
        let mut several = several.iter().filter(|scores| scores.len() > 1).peekable();
        let level = |scores: &Vec<f64>| scores.iter().all(|other| order(scores[0], *other).is_eq());
        several.peek().is_some() && several.all(level)
    }

    /// Where no two candidates of a sample have scores.
    fn nothing_compared(&self) -> Finding {
        let scored: usize = self.scores.iter().flatten().flatten().count();
        let all: usize = self.samples.iter().map(|sample| sample.candidates.len()).sum();
        let figures = json!({ "scored": scored, "candidates": all });
        if scored == 0 {
            let says = format!("No verdict: none of {} has a score", counted(all, "candidate"));
            let doubt = Doubt::Unreliable("there is nothing to trust; the outcomes say why".to_owned());
            return Finding::new(says, figures, doubt);
        }
        let [all, samples] = [counted(all, "candidate"), counted(self.samples.len(), "sample")];
        let says = format!("With scores: {} of {all} in {samples}; no sample has two to compare", thousands(scored));
        Finding::new(says, figures, Doubt::Caution("the scores were held against no gold".to_owned()))
    }
}

/// Agreement with preferences.
fn accuracy(choices: &[ChoicePoint], confidence: f64, judge: &str) -> Option<Finding> {
    let ChoiceAccuracy { accuracy, chance, interval, p, samples } = ChoiceAccuracy::of(choices, confidence).ok()?;
    let Interval { low, high } = interval;
    let weak = chance + WEAK_ABOVE_CHANCE * (1.0 - chance);
    let doubt = if low <= chance && chance <= high {
        // Chance comes before few samples here too.
        let why = format!("guessing would do as well: the interval contains {}", short_percent(chance, ' '));
        Doubt::Unreliable(why)
    } else if high < chance {
        Doubt::Unreliable("it is against the preferences".to_owned())
    } else if samples < FEW_CONTEXTS {
        Doubt::Caution(format!("it was held against preferences in only {}", counted(samples, "sample")))
    } else if accuracy < weak {
        Doubt::Caution("it agrees with gold, though weakly".to_owned())
    } else if low < weak {
        Doubt::Caution(may_be_weak(&short_percent(low, '\u{a0}'), &short_percent(weak, '\u{a0}')))
    } else {
        Doubt::None
    };
    let count = |is: fn(&ChoicePoint) -> bool| choices.iter().filter(|choice| is(choice)).count();
    let (right, level) = (count(|choice| choice.point == 1.0), count(|choice| choice.is_shared()));
    let level = if level == 0 { String::new() } else { format!(" and level on {level}") };
    let says = format!(
        "The {judge} is right on {right} of your {}{level}: {}{}; chance is {}",
        counted(samples, "label"),
        percent(accuracy),
        percents(Some(interval), confidence),
        short_percent(chance, '\u{a0}')
    );
    let figures = json!({ "accuracy": accuracy, "interval": interval, "p": p, "samples": samples, "chance": chance });
    Some(Finding::new(says, figures, doubt))
}

/// Why agreement that seems strong enough is not known to be: `low` is the interval's low end, `weak` the limit.
fn may_be_weak(low: &str, weak: &str) -> String {
    format!("the agreement may be weak: the interval reaches down to {low}, and below {weak} is weak")
}

/// `33.3 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// `50 %`, `33.3 %`.
fn short_percent(share: f64, space: char) -> String {
    let number = format!("{:.1}", 100.0 * share);
    format!("{}{space}%", number.strip_suffix(".0").unwrap_or(&number))
}

fn percents(interval: Option<Interval>, confidence: f64) -> String {
    let of = level(confidence);
    interval.map(|i| format!(" [{:.1}, {:.1}{of}]", 100.0 * i.low, 100.0 * i.high)).unwrap_or_default()
}

fn bracket(interval: Option<Interval>, confidence: f64) -> String {
    let of = level(confidence);
    interval.map(|i| format!(" [{}, {}{of}]", fixed(i.low, 3), fixed(i.high, 3))).unwrap_or_default()
}

/// An interval's level, where it is not the usual one.
fn level(confidence: f64) -> String {
    if confidence == CONFIDENCE { String::new() } else { format!("; at {}", short_percent(confidence, '\u{a0}')) }
}

mod carried;
mod winner;

#[cfg(test)]
mod tests;
