//! The plots of papers, from what a method's summary says: the lines of comparative assessment over the number of
//! comparisons, metrics under every kind of reference, the rounds of an examination, measures of revision by category and
//! difficulty and against each other, and verdicts that attacks turn.

use serde_json::Value;

use crate::plot::{Along, CORRELATES, Figure, ForestEstimate, Point, SERIES, Series, forest, heat, lines, map};
use crate::run::ReportedRun;
use crate::text::visible_line;

/// All that a run's summary has figures for.
pub(crate) fn figures(prefix: &str, run: &ReportedRun) -> Vec<Figure> {
    let mut figures = subsets(prefix, run);
    figures.extend(references(prefix, run));
    figures.extend(rounds(prefix, run));
    figures.extend(units(prefix, run));
    figures.extend(parts(prefix, run));
    figures.extend(correlations(prefix, run));
    figures.extend(attacks(prefix, run));
    figures
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// In the order in which they come first.
fn distinct<'a>(rows: &[&'a Value], field: &str) -> Vec<&'a Value> {
    let mut all: Vec<&Value> = Vec::new();
    for row in rows {
        if !all.contains(&&row[field]) {
            all.push(&row[field]);
        }
    }
    all
}

/// Spearman over the number of comparisons, by scheme (Liusie, Manakul and Gales 2024, Figures 4 and 5).
fn subsets(prefix: &str, run: &ReportedRun) -> Vec<Figure> {
    let all: Vec<&Value> =
        run.summary.pointer("/values/analyses/subsets").and_then(Value::as_array).into_iter().flatten().collect();
    let mut prompts: Vec<(String, String)> = Vec::new();
    for row in &all {
        let prompt = (text(row, "attribute"), text(row, "template"));
        if !prompts.contains(&prompt) {
            prompts.push(prompt);
        }
    }
    let draws = run.summary.pointer("/values/analyses/runs").and_then(Value::as_u64).unwrap_or(0);
    let mut figures = Vec::new();
    for (number, (attribute, template)) in prompts.iter().enumerate() {
        let rows: Vec<&Value> = all
            .iter()
            .copied()
            .filter(|row| (text(row, "attribute"), text(row, "template")) == (attribute.clone(), template.clone()))
            .collect();
        let ways =
            [("spearman", "decided at 0.5"), ("debiased_on_drawn", "decided at the median of p over what was drawn")];
        for (way, said) in ways {
            let series: Vec<Series> = distinct(&rows, "scheme")
                .into_iter()
                .map(|scheme| Series {
                    name: scheme.as_str().unwrap_or_default().to_owned(),
                    points: rows
                        .iter()
                        .filter(|row| row["scheme"] == *scheme)
                        .filter_map(|row| point(row, way))
                        .collect(),
                })
                .collect();
            let caption = format!(
                "Mean Spearman per context with so many comparisons of each context, {said}; by how the comparisons \
                 are chosen. The band holds nine of ten of {draws} \
                 draws. Template {}.",
                visible_line(template)
            );
            let title = format!("How many comparisons are enough, {}", visible_line(attribute));
            let id = format!("{prefix}-subsets-{number}-{}", if way == "spearman" { "judged" } else { "debiased" });
            figures.extend(lines(id, title, caption, &Along::Counts("comparisons of a context"), "Spearman", &series));
        }
    }
    figures
}

fn point(row: &Value, way: &str) -> Option<Point> {
    let band = row["ranges"][way].as_array().and_then(|ends| Some((ends.first()?.as_f64()?, ends.get(1)?.as_f64()?)));
    Some(Point { x: row["comparisons"].as_f64()?, y: row[way].as_f64()?, band })
}

/// The judge and each metric under every kind of reference (Zhang et al. 2024, Figure 3): accuracy on pairs, or
/// Spearman over all candidates.
fn references(prefix: &str, run: &ReportedRun) -> Vec<Figure> {
    let of = |pointer: &str| {
        run.summary.pointer(pointer).and_then(Value::as_array).into_iter().flatten().collect::<Vec<_>>()
    };
    let (pairs, gold) = (of("/values/pairs"), of("/values/gold"));
    let (rows, above): (Vec<&Value>, &str) = if pairs.is_empty() { (gold, "Spearman") } else { (pairs, "accuracy") };
    let rows: Vec<&Value> =
        rows.into_iter().filter(|row| row["reference"].is_string() && row["by"].is_string()).collect();
    let value = |row: &Value| match above {
        "accuracy" => row["accuracy"].as_f64(),
        _ => row.pointer("/figures/spearman/pooled/coefficient").and_then(Value::as_f64),
    };
    let mut figures = Vec::new();
    for (number, attribute) in distinct(&rows, "attribute").into_iter().enumerate() {
        let of_attribute: Vec<&Value> = rows.iter().copied().filter(|row| row["attribute"] == *attribute).collect();
        let voices: Vec<String> =
            distinct(&of_attribute, "by").into_iter().filter_map(|by| Some(by.as_str()?.to_owned())).collect();
        let kinds = distinct(&of_attribute, "reference");
        // One voice or one kind of reference has nothing to be compared with.
        if voices.len() < 2 || kinds.len() < 2 {
            continue;
        }
        let series: Vec<Series> = kinds
            .into_iter()
            .map(|kind| Series {
                name: kind.as_str().unwrap_or_default().to_owned(),
                points: of_attribute
                    .iter()
                    .filter(|row| row["reference"] == *kind)
                    .filter_map(|row| {
                        let x = voices.iter().position(|by| row["by"] == *by.as_str())? as f64;
                        Some(Point { x, y: value(row)?, band: None })
                    })
                    .collect(),
            })
            .collect();
        let name = attribute.as_str().unwrap_or_default();
        let caption = format!(
            "The judge and each metric under every kind of reference: {above}{}.",
            if above == "accuracy" { " against preferences; guessing has 0.5" } else { " over all candidates" }
        );
        let title = format!("What references do for judge and metrics, {}", visible_line(name));
        figures.extend(lines(
            format!("{prefix}-references-{number}"),
            title,
            caption,
            &Along::Names(&voices),
            above,
            &series,
        ));
    }
    figures
}

/// Units that are open behind each round (Ref-Eval, Figure 3).
fn rounds(prefix: &str, run: &ReportedRun) -> Option<Figure> {
    let rounds = run.summary.pointer("/values/rounds")?.as_array()?;
    let at =
        |round: &Value, field: &str| Some(Point { x: round["round"].as_f64()?, y: round[field].as_f64()?, band: None });
    let first = rounds.first().and_then(|round| Some(Point { x: 0.0, y: round["open"].as_f64()?, band: None }));
    let left = rounds.iter().filter_map(|round| at(round, "left"));
    let series = [Series { name: "open units".to_owned(), points: first.into_iter().chain(left).collect() }];
    let caption =
        "Knowledge units that no answer has spoken of, behind each round. The steeper the line, the more the \
                   evaluated model says when it is asked; where it lies flat nothing more comes."
            .to_owned();
    let title = "Units left by round".to_owned();
    lines(format!("{prefix}-rounds"), title, caption, &Along::Counts("round"), "units", &series)
}

/// Units as points of a plane, by the round that covered them (Ref-Eval, Figure 5).
fn units(prefix: &str, run: &ReportedRun) -> Option<Figure> {
    let groups = run.summary.pointer("/values/map")?.as_array()?;
    let point = |point: &Value| Some(Point { x: point[0].as_f64()?, y: point[1].as_f64()?, band: None });
    let of = |group: &Value| Series {
        name: group["round"].as_u64().map_or_else(|| "left open".to_owned(), |round| format!("round {round}")),
        points: group["points"].as_array().into_iter().flatten().filter_map(point).collect(),
    };
    let mut all: Vec<Series> = groups.iter().map(of).collect();
    // What has no look of its own is joined with the last round that has.
    if all.len() > SERIES {
        let rest: Vec<Point> = all.drain(SERIES - 2..all.len() - 1).flat_map(|series| series.points).collect();
        all.insert(SERIES - 2, Series { name: "later rounds".to_owned(), points: rest });
    }
    let caption =
        "Each point is a knowledge unit, by the two principal components of its embedding: what lies together \
                   is about the same. Colours tell in which round an answer spoke of it."
            .to_owned();
    map(format!("{prefix}-map"), "Map of the units".to_owned(), caption, &all)
}

/// Accuracy of the measures of revision that agree best with people, by category of revision and by difficulty (Jourdan
/// et al. 2025, Figures 5 and 6).
fn parts(prefix: &str, run: &ReportedRun) -> Vec<Figure> {
    let all = run.summary.pointer("/values/alignment").and_then(Value::as_array).into_iter().flatten();
    let kappa = |one: &Value| one.pointer("/calibrated/kappa/value").and_then(Value::as_f64);
    let mut best: Vec<(&Value, f64)> = all.filter_map(|one| Some((one, kappa(one)?))).collect();
    // A stable sort: those that are level stay in their order.
    best.sort_by(|a, b| b.1.total_cmp(&a.1));
    best.truncate(SERIES);
    let kinds = [("by_category", "category of revision"), ("by_difficulty", "difficulty")];
    let figure = |(field, of): (&str, &str)| {
        let rows = |one: &Value| one[field].as_array().cloned().unwrap_or_default();
        let names: Vec<String> = rows(best.first()?.0)
            .iter()
            .map(|part| format!("{} ({})", text(part, "part").replace('_', " "), part["pairs"].as_u64().unwrap_or(0)))
            .collect();
        // One part has nothing to be compared with.
        if names.len() < 2 {
            return None;
        }
        let point =
            |(place, part): (usize, &Value)| Some(Point { x: place as f64, y: part["accuracy"].as_f64()?, band: None });
        let series: Vec<Series> = best
            .iter()
            .map(|(one, _)| Series {
                name: text(one, "by"),
                points: rows(one).iter().enumerate().filter_map(point).collect(),
            })
            .collect();
        let caption = format!(
            "Share of pairs, by {of}, of which the measures with the highest κ say what people say; in brackets how many \
             pairs there are. Intervals are in the table."
        );
        let title = format!("Agreement with people by {of}");
        lines(format!("{prefix}-{field}"), title, caption, &Along::Names(&names), "accuracy", &series)
    };
    kinds.into_iter().filter_map(figure).collect()
}

/// Pearson's r between all scores of revisions, edit distances among them (Jourdan et al. 2025, Figures 3 and 4).
fn correlations(prefix: &str, run: &ReportedRun) -> Option<Figure> {
    let found = run.summary.pointer("/values/correlations")?;
    let names: Vec<&str> = found["names"].as_array()?.iter().filter_map(Value::as_str).collect();
    let row = |row: &Value| row.as_array().map(|row| row.iter().map(Value::as_f64).collect::<Vec<_>>());
    let cells: Vec<Vec<Option<f64>>> = found["cells"].as_array()?.iter().filter_map(row).collect();
    // A summary may be changed: a matrix is as wide as it is high.
    if names.is_empty() || cells.len() != names.len() || cells.iter().any(|row| row.len() != names.len()) {
        return None;
    }
    let caption = "Pearson's r between scores of single revisions, as each measure has them: distances are lower where \
                   less was edited. What goes with the edit distances measures how much was changed.";
    let title = "Measures against each other and against edit distances".to_owned();
    Some(heat(format!("{prefix}-correlations"), title, caption, &CORRELATES, &names, &cells))
}

/// The share of verdicts that attacks turn: of each method under each defence, and of each attack on the method that gives
/// way most.
fn attacks(prefix: &str, run: &ReportedRun) -> Vec<Figure> {
    let Some(prompts) = run.summary.pointer("/values/prompts").and_then(Value::as_array) else { return Vec::new() };
    let estimate = |name: String, turned: &Value| {
        let interval = turned["interval"]["low"].as_f64().zip(turned["interval"]["high"].as_f64());
        Some(ForestEstimate { name, value: turned["share"].as_f64()?, interval })
    };
    let of_prompt = |one: &Value| {
        let (method, defence) = (text(one, "method"), text(one, "defence"));
        let name = if defence == "none" { method } else { format!("{method}, {defence}") };
        estimate(name, &one["turned"])
    };
    let by_prompt: Vec<ForestEstimate> = prompts.iter().filter_map(of_prompt).collect();
    let share = |one: &&Value| one["turned"]["share"].as_f64();
    let undefended = prompts.iter().filter(|one| one["defence"] == "none" && share(one).is_some());
    let worst = undefended.max_by(|a, b| share(a).partial_cmp(&share(b)).unwrap_or(std::cmp::Ordering::Equal));
    let of_worst = worst.and_then(|worst| worst["attacks"].as_array()).into_iter().flatten();
    let by_attack: Vec<ForestEstimate> =
        of_worst.filter_map(|one| estimate(text(one, "attack"), &one["turned"])).collect();
    let said = "Of the items in which a harmless text of the same length had not made the attacked candidate the better \
                one, the share in which the attack does, with 95 % intervals over items";
    let figure = |id: &str, title: String, more: &str, rows: &[ForestEstimate]| {
        let id = format!("{prefix}-{id}");
        (!rows.is_empty()).then(|| forest(id, title, format!("{said}{more}."), "verdicts turned", rows, 0.0))
    };
    let method = worst.map(|worst| visible_line(&text(worst, "method"))).unwrap_or_default();
    [
        figure("attacked", "Verdicts that attacks turn".to_owned(), "; the mean over attacks", &by_prompt),
        figure("attacks", format!("Attacks on {method}"), "; without a defence", &by_attack),
    ]
    .into_iter()
    .flatten()
    .collect()
}
