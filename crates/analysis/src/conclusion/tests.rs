use probity_data::Preference;

use super::*;
use crate::figures::Mass;
use crate::gold;
use crate::testing;

/// A sample with these gold scores for the systems `zero`, `one` and so on.
fn sample(id: &str, golds: &[f64]) -> Sample {
    let mut sample = testing::sample(id, golds);
    for (candidate, name) in sample.candidates.iter_mut().zip(["zero", "one", "two", "three"]) {
        candidate.id = name.to_owned();
    }
    sample
}

/// The conclusion for samples of these systems with these scores.
fn conclusion(scores: &[&[f64]], preferred: Option<&str>, turned: Option<(f64, usize)>, with_gold: bool) -> Conclusion {
    let mut samples: Vec<Sample> = scores.iter().enumerate().map(|(k, row)| sample(&format!("s{k}"), row)).collect();
    for one in &mut samples {
        one.preference = preferred.map(|id| Preference::Candidate(id.to_owned()));
    }
    let scores: Vec<Vec<Option<f64>>> =
        scores.iter().map(|row| row.iter().map(|score| Some(*score)).collect()).collect();
    let figures = with_gold.then(|| gold::against(&samples, "coherence", &scores));
    let case = ConclusionCase {
        samples: &samples,
        scores: &scores,
        gold: figures.as_ref(),
        attribute: Some("coherence"),
        preferences: true,
        answers: AnswerDoubts { turned, ..AnswerDoubts::default() },
        ..ConclusionCase::default()
    };
    case.conclusion()
}

fn agreement(found: &Conclusion) -> &str {
    found.agreement.as_deref().expect("there are labels")
}

#[test]
fn of_two_candidates_it_says_who_won_how_often_and_that_order_alone_decided() {
    let rows: Vec<&[f64]> = vec![&[0.4, 0.6][..]; 8].into_iter().chain(vec![&[0.6, 0.4][..]; 2]).collect();
    let found = conclusion(&rows, None, Some((1.0, 10)), false);
    let counts = "8 of 10 samples (80.0% [44.4, 97.5], sign test p = 0.109)";
    assert_eq!(found.says, format!("No winner: untrusted scores prefer one to zero in {counts}"));
    let why = "swapping the two texts changes the verdict in 100.0% of 10 pairs; the difference may be chance (sign \
               test p \
               = 0.109)";
    assert_eq!((found.trust, found.because.as_str()), (Trust::Unreliable, why));
    let met = &found.figures["head_to_head"];
    assert_eq!((&met["winner"], &met["clear"]), (&Value::Null, &json!(false)), "as the sentence says");
    assert_eq!((&met["first"], &met["second"], &met["wins"]), (&json!("one"), &json!("zero"), &json!(8)));
    let steady = conclusion(&rows, None, Some((0.0, 10)), false);
    assert_eq!(steady.says, format!("No clear winner: one beats zero in {counts}"));
    assert_eq!(
        (steady.trust, steady.because.as_str()),
        (Trust::Caution, "the difference may be chance (sign test p = 0.109)")
    );
    let clear = conclusion(&[&[0.4, 0.6][..]; 12], None, Some((0.0, 12)), false);
    assert_eq!((clear.trust, clear.because.as_str()), (Trust::Caution, "it was not compared with gold"));
    assert!(clear.says.starts_with("one beats zero in 12 of 12 samples (100.0%"), "{}", clear.says);
}

#[test]
fn of_two_candidates_the_one_that_wins_more_samples_is_named_whatever_the_mean_scores() {
    // One outlying sample outweighs two others in the mean.
    let found = conclusion(&[&[0.9, 0.1][..], &[0.4, 0.6], &[0.4, 0.6]], None, Some((0.0, 3)), false);
    assert!(found.says.starts_with("No clear winner: one beats zero in 2 of 3 samples (66.7%"), "{}", found.says);
    let met = &found.figures["head_to_head"];
    assert_eq!((&met["first"], &met["winner"]), (&json!("one"), &Value::Null));
    let means: Vec<f64> = met["means"].as_array().expect("two").iter().filter_map(Value::as_f64).collect();
    assert!(means[0] < means[1], "the mean of the first stands first: {means:?}");
}

#[test]
fn equal_scores_agree_with_nothing_and_name_nobody() {
    let found = conclusion(&[&[0.5, 0.5, 0.5][..]; 6], None, None, true);
    let because = "No agreement with gold: the candidates of each sample have equal scores";
    let level = "All 3 candidates tie, by untrusted scores";
    assert_eq!((found.says.as_str(), agreement(&found)), (level, because));
    assert_eq!(found.trust, Trust::Unreliable);
    assert_eq!(conclusion(&[&[0.5, 0.5, 0.5][..]; 6], None, None, false).says, "All 3 candidates tie");
    let top = conclusion(&[&[0.5, 0.7, 0.7, 0.7][..]; 6], None, None, false);
    assert_eq!(top.says, "Best of 4 by mean score: one, three and 1 more tie");
}

#[test]
fn a_judge_that_names_the_first_is_not_believed_though_no_pair_was_turned() {
    let samples: Vec<Sample> = (0..12).map(|k| sample(&format!("s{k}"), &[1.0, 2.0])).collect();
    let scores = vec![vec![Some(0.2), Some(0.9)]; 12];
    let case = |first_wins| ConclusionCase {
        samples: &samples,
        scores: &scores,
        preferences: true,
        answers: AnswerDoubts { first_wins, ..AnswerDoubts::default() },
        ..ConclusionCase::default()
    };
    let found = case(Some(1.0)).conclusion();
    assert_eq!(found.trust, Trust::Unreliable);
    assert_eq!(
        found.because,
        "no pair was judged in both orders, and the first text wins 100.0%; it was not compared with gold"
    );
    assert_eq!(case(Some(0.5)).conclusion().because, "it was not compared with gold");
}

#[test]
fn who_is_in_the_easy_samples_alone_is_not_the_best() {
    let samples: Vec<Sample> = (0..30).map(|k| sample(&format!("s{k}"), &[1.0, 2.0, 3.0])).collect();
    let of = |k: usize| if k < 8 { [Some(0.9), Some(0.8), Some(0.1)] } else { [Some(0.1), None, Some(0.0)] };
    let scores: Vec<Vec<Option<f64>>> = (0..30).map(|k| of(k).to_vec()).collect();
    let found = ConclusionCase { samples: &samples, scores: &scores, ..ConclusionCase::default() }.conclusion();
    assert!(
        found.says.starts_with("No clear winner of 3: one has the highest mean score and beats zero in"),
        "{}",
        found.says
    );
    let because = "24.4% of the results have no score; the second wins in more samples";
    assert_eq!(found.because, because);
}

#[test]
fn what_dropped_out_is_told_and_keeps_agreement_from_being_reliable() {
    let samples: Vec<Sample> = (0..30).map(|k| sample(&format!("s{k}"), &[1.0, 2.0, 3.0])).collect();
    let with_scores_of = |scored: usize| {
        let row = |k: usize| (1..=3).map(|c| (k < scored).then_some(f64::from(c))).collect::<Vec<_>>();
        let scores: Vec<Vec<Option<f64>>> = (0..30).map(row).collect();
        let figures = gold::against(&samples, "coherence", &scores);
        let case = ConclusionCase { samples: &samples, scores: &scores, ..ConclusionCase::default() };
        ConclusionCase { gold: Some(&figures), ..case }.conclusion()
    };
    assert_eq!(with_scores_of(28).trust, Trust::Reliable);
    let half = with_scores_of(15);
    let because = "50.0% of the results have no score";
    assert_eq!((half.trust, half.because.as_str()), (Trust::Caution, because));
}

#[test]
fn of_many_it_names_the_best_and_of_level_ones_that_they_are() {
    let found = conclusion(&[&[0.1, 0.9, 0.5][..]; 12], None, None, false);
    assert!(
        found.says.starts_with("Best of 3: one has the highest mean score and beats two in 12 of 12 samples (100.0%"),
        "{}",
        found.says
    );
    let few = conclusion(&[&[0.1, 0.9, 0.5][..]; 3], None, None, false);
    assert!(
        few.says.starts_with("No clear winner of 3: one has the highest mean score and beats two in 3 of 3"),
        "{}",
        few.says
    );
    let level = conclusion(&[&[0.3, 0.1 + 0.2][..]; 2], None, None, false);
    assert!(
        level.says.starts_with("one and zero tie: each wins 0 of 2 samples and ties in 2 (50.0%"),
        "{}",
        level.says
    );
    assert_eq!(level.figures["head_to_head"]["winner"], Value::Null);
}

#[test]
fn preferences_make_it_reliable_or_show_that_guessing_does_as_well() {
    let rows = [&[0.4, 0.6][..]; 20];
    let right = conclusion(&rows, Some("one"), Some((0.1, 20)), false);
    assert_eq!(right.trust, Trust::Reliable, "{right:?}");
    let says = "one beats zero in 20 of 20 samples (100.0% [83.2, 100.0], sign test p < 0.001); by the labels of \
                all samples, one wins 100.0% [83.2, 100.0]";
    assert_eq!(right.says, says);
    let labels = "The judge is right on 20 of your 20 labels: 100.0% [83.2, 100.0]; chance is 50%";
    assert_eq!(agreement(&right), labels);
    assert_eq!(
        conclusion(&rows, Some("one"), Some((0.8, 20)), false).trust,
        Trust::Caution,
        "right, and yet by the order"
    );
    assert_eq!(conclusion(&rows, Some("zero"), None, false).trust, Trust::Unreliable);
}

#[test]
fn preferences_of_few_samples_are_a_beginning_whatever_they_say() {
    let few = conclusion(&[&[0.4, 0.6][..]; 9], Some("one"), Some((0.1, 9)), false);
    assert_eq!((few.trust, few.because.as_str()), (Trust::Caution, "compared with preferences on only 9 samples"));
    // A few labels against the scores are enough to reject them.
    assert_eq!(conclusion(&[&[0.4, 0.6][..]; 9], Some("zero"), None, false).trust, Trust::Unreliable);
    // Fewer than six labels cannot exclude chance, even if all agree.
    let two = conclusion(&[&[0.4, 0.6][..]; 2], Some("one"), None, false);
    assert!(two.because.starts_with("2 labels are too few to tell whether the judge is right"), "{}", two.because);
    assert_eq!(two.trust, Trust::Caution);
}

#[test]
fn preferences_among_several_are_held_against_guessing_too() {
    let row = |best: usize| -> &[f64] { [&[0.9, 0.1, 0.2][..], &[0.1, 0.9, 0.2], &[0.1, 0.2, 0.9]][best] };
    // Right in 4 of 12: chance for three candidates.
    let rows: Vec<&[f64]> = (0..12).map(|k| row(k % 3)).collect();
    let guessed = conclusion(&rows, Some("zero"), None, false);
    assert_eq!(
        (guessed.trust, guessed.because.as_str()),
        (Trust::Unreliable, "no better than chance: the interval includes 33.3%")
    );
    let labels = "The judge is right on 4 of your 12 labels: 33.3% [9.9, 65.1]; chance is 33.3%";
    assert_eq!(agreement(&guessed), labels);
    // Right in 8 of 12: better than chance, but the interval starts in the weak range.
    let rows: Vec<&[f64]> = (0..12).map(|k| row(usize::from(k >= 8))).collect();
    let found = conclusion(&rows, Some("zero"), None, false);
    let because = "the agreement may be weak: the interval starts at 34.9%, and below 46.7% is weak";
    assert_eq!((found.trust, found.because.as_str()), (Trust::Caution, because));
    let rows: Vec<&[f64]> = (0..12).map(|k| row(usize::from(k == 11))).collect();
    assert_eq!(conclusion(&rows, Some("zero"), None, false).trust, Trust::Reliable);
    // Equal scores are at chance for any number of samples.
    let level = conclusion(&[&[0.5, 0.5, 0.5][..]; 60], Some("zero"), None, false);
    assert_eq!(
        (level.trust, level.figures["accuracy"].as_f64()),
        (Trust::Unreliable, level.figures["chance"].as_f64())
    );
    // Never right.
    assert_eq!(conclusion(&[row(1); 20], Some("zero"), None, false).because, "it disagrees with the preferences");
    assert_eq!(conclusion(&[row(0); 3], Some("zero"), None, false).trust, Trust::Caution, "too few to tell");
}

#[test]
fn gold_is_told_beside_who_won_and_chance_is_called_chance() {
    // Gold equals the scores.
    let rows: Vec<Vec<f64>> = (0..12).map(|k| vec![1.0, 2.0, 3.0 + f64::from(k % 3)]).collect();
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let found = conclusion(&rows, None, None, true);
    let first = "Best of 3: two has the highest mean score and beats one in 12 of 12 samples (100.0% [73.5, 100.0], \
                 sign \
                 test p < 0.001); by the labels of all samples, two wins 100.0% [73.5, 100.0]";
    assert_eq!(found.says, first);
    assert!(agreement(&found).starts_with("Agrees with gold: Spearman 1.000"), "{found:?}");
    assert_eq!(found.trust, Trust::Reliable);
    let one = conclusion(&rows[..1], None, None, true);
    let chance = "No agreement with gold beyond chance: Spearman 1.000 [-0.950, 1.000] (in the one context)";
    assert!(agreement(&one).starts_with(chance), "{one:?}");
    assert_eq!((one.trust, one.because.as_str()), (Trust::Unreliable, "the interval includes 0 (chance)"));
}

#[test]
fn nothing_scored_is_no_verdict() {
    let samples = [sample("a", &[1.0, 2.0])];
    let case = ConclusionCase {
        about: Some("coherence".into()),
        samples: &samples,
        scores: &[vec![None, None]],
        preferences: true,
        ..ConclusionCase::default()
    };
    let found = case.conclusion();
    assert_eq!((found.trust, found.says.as_str()), (Trust::Unreliable, "No verdict: none of 2 candidates has a score"));
}

/// Label mass with `of_ten` of ten answers low.
fn low(of_ten: usize) -> Mass {
    Mass::from_answers((0..10).map(|k| (0.5, k < of_ten)))
}

#[test]
fn a_low_mass_is_told_whatever_else_speaks_against_a_verdict() {
    let samples: Vec<Sample> = (0..12).map(|k| sample(&format!("s{k}"), &[1.0, 2.0])).collect();
    let (scores, reversed) = (vec![vec![Some(0.2), Some(0.9)]; 12], vec![vec![Some(0.9), Some(0.2)]; 12]);
    let because = |scores: &[Vec<Option<f64>>], with_gold: bool, mass: Mass| {
        let figures = with_gold.then(|| gold::against(&samples, "coherence", scores));
        let case = ConclusionCase {
            samples: &samples,
            scores,
            gold: figures.as_ref(),
            answers: AnswerDoubts { low_mass: mass.low_share, ..AnswerDoubts::default() },
            ..ConclusionCase::default()
        };
        let found = case.conclusion();
        (found.trust, found.because)
    };
    let low_in = |share: &str| format!("{share}% of the answers have low label mass");
    let (trust, why) = because(&scores, false, low(3));
    assert_eq!((trust, why), (Trust::Caution, format!("{}; it was not compared with gold", low_in("30.0"))));
    let (trust, why) = because(&reversed, true, low(3));
    assert_eq!((trust, why), (Trust::Unreliable, format!("{}, and it ranks texts opposite to gold", low_in("30.0"))));
    assert_eq!(because(&scores, true, low(6)), (Trust::Caution, low_in("60.0")));
    assert_eq!(because(&scores, false, low(1)).1, "it was not compared with gold", "few are none");
}

#[test]
fn samples_of_one_candidate_are_held_against_gold_over_all_scores() {
    let rows: Vec<[f64; 1]> = (0..12).map(|k| [f64::from(k)]).collect();
    let rows: Vec<&[f64]> = rows.iter().map(<[f64; 1]>::as_slice).collect();
    let found = conclusion(&rows, None, None, true);
    assert!(found.says.ends_with(": Spearman 1.000 (over all 12 scores)"), "{}", found.says);
}

#[test]
fn of_several_metrics_the_best_is_named_with_the_next_and_how_many_agree() {
    let rows: Vec<Vec<f64>> = (0..12).map(|k| vec![1.0, 2.0, 3.0 + f64::from(k % 3)]).collect();
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let named = |name: &str, found: Conclusion| Conclusion { about: Some(name.to_owned()), ..found };
    let good = || named("good", conclusion(&rows, None, None, true));
    let level = named("level", conclusion(&[&[0.5, 0.5][..]; 6], None, None, true));
    let found = best_agreement(Some("q"), vec![level.clone(), good()], &[]).expect("two");
    assert_eq!((found.about.as_deref(), found.trust), (Some("q"), Trust::Reliable));
    assert!(
        found.says.starts_with("By good: Best of 3: two has the highest mean score and beats one"),
        "{}",
        found.says
    );
    let best = agreement(&found);
    let start = "Best agreement with people of 2 metrics: good. Agrees with gold: Spearman 1.000";
    assert!(best.starts_with(start), "{best}");
    assert!(best.ends_with(". Next: level; 1 of 2 agree beyond chance"), "{best}");
    let one = best_agreement(Some("q"), vec![good()], &[]).expect("one");
    assert_eq!((one.about.as_deref(), one.says), (Some("q, good"), good().says));
    let none = best_agreement(None, vec![level.clone(), named("other", level)], &[]).expect("two");
    assert!(agreement(&none).starts_with("None of 2 metrics agrees with people beyond chance"), "{none:?}");
    assert_eq!((none.about, none.trust), (None, Trust::Unreliable));
    assert_eq!(best_agreement(None, Vec::new(), &[]), None);
    // A result that barely excludes chance does not do so as the best of ten.
    let p = |p: f64| Conclusion { figures: json!({ "spearman": 0.5, "interval": [0.1, 0.8], "p": p }), ..good() };
    let best_of = |number: usize| {
        best_agreement(None, (0..number).map(|k| named(&k.to_string(), p(0.01))).collect(), &[]).expect("some")
    };
    assert_eq!((best_of(1).trust, best_of(5).trust), (Trust::Reliable, Trust::Reliable));
    let ten = best_of(10);
    assert_eq!(ten.because, "the best of 10 may be first by chance: p 0.0100 times 10");
    assert_eq!(ten.trust, Trust::Caution);
}

/// Samples of two systems. The flag is true if the judge prefers `gpt`; the second field is the human preference.
fn systems(names: impl Fn(usize) -> [String; 2], said: &[(bool, Option<Preference>)]) -> Conclusion {
    let of_sample = |(k, (_, preference)): (usize, &(bool, Option<Preference>))| {
        let mut sample = testing::sample(&format!("s{k}"), &[1.0, 2.0]);
        for (candidate, name) in sample.candidates.iter_mut().zip(names(k)) {
            candidate.id = name;
        }
        Sample { preference: preference.clone(), ..sample }
    };
    let samples: Vec<Sample> = said.iter().enumerate().map(of_sample).collect();
    let score = |gpt: &(bool, _)| if gpt.0 { vec![Some(0.9), Some(0.1)] } else { vec![Some(0.1), Some(0.9)] };
    let scores: Vec<Vec<Option<f64>>> = said.iter().map(score).collect();
    let case = ConclusionCase { samples: &samples, scores: &scores, preferences: true, ..ConclusionCase::default() };
    case.conclusion()
}

fn prefer(id: &str) -> Preference {
    Preference::Candidate(id.to_owned())
}

/// Thirty samples: the judge prefers `gpt` in 24. Twelve have human labels: ten agree, one is a tie.
fn thirty() -> Vec<(bool, Option<Preference>)> {
    let gpt = (0..30).map(|k| k % 5 != 4);
    let people = |(k, gpt): (usize, bool)| match k {
        0 => (gpt, Some(prefer("local"))),
        1 => (gpt, Some(Preference::Tie)),
        2..12 => (gpt, Some(prefer(if gpt { "gpt" } else { "local" }))),
        _ => (gpt, None),
    };
    gpt.enumerate().map(people).collect()
}

#[test]
fn it_says_who_won_corrected_by_labels_then_on_how_many_labels_the_judge_is_right() {
    let found = systems(|_| ["gpt", "local"].map(str::to_owned), &thirty());
    assert_eq!(
        found.says,
        "gpt beats local in 24 of 30 samples (80.0% [61.4, 92.3], sign test p = 0.001); corrected with 12 \
         labels (1 tie, half a win), gpt wins 68.2% [39.4, 89.4], which is inconclusive"
    );
    let labels = "The judge is right on 10 of your 11 labels (1 tie left out): 90.9% [58.7, 99.8]; chance is 50%";
    assert_eq!(agreement(&found), labels);
    let met = &found.figures["head_to_head"];
    assert_eq!((&met["winner"], &met["wins"], &met["losses"]), (&json!("gpt"), &json!(24), &json!(6)));
    assert_eq!((&met["corrected"]["labels"], &met["corrected"]["unlabelled"]), (&json!(12), &json!(18)));
    // One label corrects nothing; without labels nothing is reported.
    let few: Vec<_> = thirty().into_iter().enumerate().map(|(k, (gpt, said))| (gpt, said.filter(|_| k == 2))).collect();
    let one = systems(|_| ["gpt", "local"].map(str::to_owned), &few);
    assert!(one.says.ends_with("sign test p = 0.001)") && one.agreement.is_some(), "{one:?}");
}

#[test]
fn labels_decide_against_a_judge_and_where_it_decides_nothing() {
    let names = |_: usize| ["gpt", "local"].map(str::to_owned);
    // The judge prefers one system; the labels of half the samples prefer the other.
    let against: Vec<_> = (0..60).map(|k| (k % 5 != 4, (k % 2 == 0).then(|| prefer("local")))).collect();
    let found = systems(names, &against);
    assert_eq!(
        found.says,
        "local beats gpt: corrected with 30 labels, local wins 100.0% [88.4, 100.0]; by the judge, whose scores \
         are not trusted, it wins 12 of 60 samples (20.0% [10.8, 32.3], sign test p < 0.001)"
    );
    let met = &found.figures["head_to_head"];
    assert_eq!((found.trust, &met["winner"], &met["wins"]), (Trust::Unreliable, &json!("local"), &json!(12)));
    // Sixteen of thirty is no clear win without labels.
    let close: Vec<_> = (0..60).map(|k| (k % 2 == 0 || k == 1, (k % 4 == 0).then(|| prefer("gpt")))).collect();
    let found = systems(names, &close);
    assert!(found.says.starts_with("gpt beats local in 31 of 60 samples (51.7%"), "{}", found.says);
    // The judge is level over all samples.
    let level: Vec<_> = (0..60).map(|k| (k % 2 == 0, (k % 4 == 0).then(|| prefer("gpt")))).collect();
    let found = systems(names, &level);
    let start = "gpt beats local: corrected with 15 labels, gpt wins";
    assert!(found.says.starts_with(start) && found.says.contains("by the judge it wins 30 of 60"), "{}", found.says);
}

#[test]
fn ties_among_labels_are_counted_where_they_count_and_where_they_do_not() {
    // Twelve labels, three of them ties; the judge is right on three of the other nine.
    let said: Vec<_> = (0..30)
        .map(|k| match k {
            0..3 => (true, Some(Preference::Tie)),
            3..6 => (true, Some(prefer("gpt"))),
            6..12 => (true, Some(prefer("local"))),
            _ => (k % 3 != 0, None),
        })
        .collect();
    let found = systems(|_| ["gpt", "local"].map(str::to_owned), &said);
    assert!(found.says.contains("; corrected with 12 labels (3 ties, each half a win), gpt wins"), "{}", found.says);
    assert!(agreement(&found).starts_with("The judge is right on 3 of your 9 labels (3 ties left out): 33.3%"));
    assert_eq!((&found.figures["ties_left_out"], &found.figures["samples"]), (&json!(3), &json!(9)));
    assert_eq!(found.figures["head_to_head"]["label_ties"], json!(3));
}

#[test]
fn the_first_line_says_that_scores_are_debiased() {
    let samples: Vec<Sample> = (0..12).map(|k| sample(&format!("s{k}"), &[1.0, 2.0])).collect();
    let scores = vec![vec![Some(0.2), Some(0.9)]; 12];
    let case = ConclusionCase { samples: &samples, scores: &scores, debiased: true, ..ConclusionCase::default() };
    let says = case.conclusion().says;
    assert!(says.starts_with("one beats zero in 12 of 12 samples (debiased, 100.0%"), "{says}");
}

/// Forty samples: the judge prefers `gpt` in `by_judge` of them, people in `by_people` of twenty labels, counted from
/// the start or from the end.
fn forty(names: &[&str], by_judge: usize, by_people: Option<usize>, reversed: bool, turned: f64) -> Conclusion {
    let score = |is_gpt: bool| [f64::from(u8::from(is_gpt)), f64::from(u8::from(!is_gpt)), -1.0];
    let samples: Vec<Sample> = (0..40)
        .map(|k| {
            let mut one = testing::sample(&format!("s{k}"), &score(true)[..names.len()]);
            one.candidates.iter_mut().zip(names).for_each(|(candidate, name)| (*name).clone_into(&mut candidate.id));
            let prefers = |gpt: usize| prefer(if k < gpt { "gpt" } else { "local" });
            one.preference = by_people.filter(|_| k < 20).map(prefers);
            one
        })
        .collect();
    let of = |k: usize| score(if reversed { k >= 40 - by_judge } else { k < by_judge });
    let scores: Vec<Vec<Option<f64>>> =
        (0..40).map(|k| of(k)[..names.len()].iter().copied().map(Some).collect()).collect();
    let case = ConclusionCase { samples: &samples, scores: &scores, preferences: true, ..ConclusionCase::default() };
    ConclusionCase { answers: AnswerDoubts { turned: Some((turned, 40)), ..AnswerDoubts::default() }, ..case }
        .conclusion()
}

#[test]
fn sentence_and_figures_name_the_same_winner_and_no_clear_share_stands_beside_none() {
    let (mut named, mut by_labels, mut none) = (0, 0, 0);
    for names in [&["gpt", "local"][..], &["gpt", "local", "poor"]] {
        for by_judge in (0..=40).step_by(4) {
            for by_people in [None, Some(0), Some(2), Some(6), Some(10), Some(14), Some(18), Some(20)] {
                for (reversed, turned) in [(false, 0.0), (true, 0.0), (false, 1.0), (true, 1.0)] {
                    let Conclusion { says, figures, .. } = forty(names, by_judge, by_people, reversed, turned);
                    let met = &figures["head_to_head"];
                    let winner = met["winner"].as_str();
                    assert_eq!(met["clear"], json!(winner.is_some()), "{says}");
                    let at = |end: &str| met["corrected"]["interval"][end].as_f64();
                    let is_decided =
                        at("low").is_some_and(|low| low > 0.5) || at("high").is_some_and(|high| high < 0.5);
                    let Some(winner) = winner else {
                        none += 1;
                        let is_tie = says.contains("gpt and local tie");
                        let is_open = says.starts_with("No") || is_tie;
                        let is_of_two = names.len() > 2 && says.ends_with("which decides only between these two");
                        assert!(is_open && (!is_decided || is_of_two || is_tie), "{says} {met}");
                        assert!(!is_decided || names.len() > 2, "{says}");
                        continue;
                    };
                    named += 1;
                    assert_eq!(met["first"], json!(winner));
                    let [beats, best] = [format!("{winner} beats "), format!("Best of 3: {winner} has ")];
                    assert!(says.starts_with(&beats) || says.starts_with(&best), "{says}");
                    assert!(!is_decided || at("low").is_some_and(|low| low > 0.5), "{says} {met}");
                    by_labels += usize::from(says.contains("; by the judge"));
                }
            }
        }
    }
    assert!(named > 100 && by_labels > 20 && none > 100, "{named} {by_labels} {none}");
}

#[test]
fn ids_that_are_positions_or_of_single_texts_name_no_winner_and_say_why() {
    for [a, b] in
        [["A", "B"], ["1", "2"], ["response_a", "response_b"], ["Output 1", "Output 2"], ["chosen", "rejected"]]
    {
        let said: Vec<_> = (0..12).map(|k| (k < 11, Some(prefer(a)))).collect();
        let found = systems(|_| [a, b].map(str::to_owned), &said);
        assert_eq!(found.says, format!("No winner: the ids {a} and {b} are positions, not systems"));
        assert!(agreement(&found).starts_with("The judge is right on 11 of your 12 labels"), "{found:?}");
        assert_eq!(found.figures["head_to_head"], Value::Null);
    }
    let own = systems(|k| ["x", "y"].map(|id| format!("{id}{k}")), &[(true, None), (true, None)]);
    assert_eq!(own.says, "No winner: no two candidate ids occur in several samples");
    for [a, b] in [["gpt-4", "gpt-5"], ["M1", "M2"], ["model_a", "model_b"], ["x", "y"], ["good", "ok"]] {
        let said: Vec<_> = (0..12).map(|_| (true, None)).collect();
        let found = systems(|_| [a, b].map(str::to_owned), &said);
        assert!(found.says.starts_with(&format!("{a} beats {b} in 12 of 12 samples")), "{}", found.says);
    }
    // In a single sample an id always names a text.
    let single = systems(|_| ["A", "B"].map(str::to_owned), &[(true, None)]);
    assert!(single.says.starts_with("No clear winner: A beats B in 1 of 1 sample"), "{}", single.says);
}
