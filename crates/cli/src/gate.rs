//! `probity gate`: fails a build if a run is worse than a baseline.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use probity_analysis::{GateOptions, GateOutcome, Gated, GatedScores, gate};
use probity_lm::text::fixed;
use probity_report::markdown_text;

use crate::error::FileError;
use crate::exit::Completed;
use crate::output::{spare_input, spare_run, write_text};
use crate::terminal::{counted, print, table, thousands, visible_json, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Check whether a run is worse than a baseline, to fail a build.

Both runs judge the same items, each with the texts of its own system. Texts with the same id are compared; if an \
item has no id in common, the means of its texts are compared. With --candidates NEW,OLD, two candidates of one run \
are compared: by their scores or, for a pairwise run, by the probability that one beats the other, debiased like the \
run's scores. Each attribute or metric has one outcome:

  missing    texts lost the score that they had in the baseline: the build fails, unless --allow-missing
  worse      the 95% interval of the difference lies below --tolerance: the build fails
  better     the interval lies above --minimum-effect
  same       the interval lies between both
  undecided  the interval crosses a bound, shown with the approximate number of items that would decide it; or fewer \
than six items changed: the build fails with --strict
  noise      worse or better, but the judge's choice of prompt or the presentation order moves the difference by as \
much: the build fails with --strict

Scores for which lower is better are negated. Intervals are over items (jackknife). The judge's own uncertainty is \
known only if it was queried in several ways: with several --template, or in both orders.

Compared runs use the same judge and the same items. A different method is an error. A different model, precision or \
device, different source texts, or an unfinished run is also an error; with --allow-unlike it is reported in the first \
line instead. The first line also reports a judge that its own run calls unreliable, other settings that differ (a \
prompt, a version), and items without a score on one side.

Exit codes: 0 nothing is worse; 1 something is worse (with --strict also undecided, noise, or a run that calls its \
judge unreliable); 2 an error.";

/// Options of `gate`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Folder of the run, or a table of scores
    run: PathBuf,
    /// Folder of the baseline run, or a table of scores
    #[arg(long, value_name = "DIR", required_unless_present = "candidates", conflicts_with = "candidates")]
    baseline: Option<PathBuf>,
    /// Compare two candidates of the run by id, the new one first
    #[arg(long, value_name = "NEW,OLD", value_parser = two)]
    candidates: Option<(String, String)>,
    /// Attribute or metric to check; repeatable
    #[arg(long, value_name = "NAME")]
    attribute: Vec<String>,
    /// Ignore a loss up to this, on the scale of the scores
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = not_negative)]
    tolerance: f64,
    /// Ignore a gain up to this, on the scale of the scores
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = not_negative)]
    minimum_effect: f64,
    /// Also fail on undecided, noise or an unreliable judge
    #[arg(long)]
    strict: bool,
    /// Compare runs that are not alike
    ///
    /// The runs may differ in model or precision, have other source texts or be unfinished. The differences are
    /// reported.
    #[arg(long)]
    allow_unlike: bool,
    /// Do not fail on texts that lost their score
    ///
    /// Their number is reported.
    #[arg(long)]
    allow_missing: bool,
    /// Write the outcomes as `JUnit` XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Append a Markdown table to this file, such as a job summary
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn two(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((new, old)) if !new.is_empty() && !old.is_empty() && new != old => Ok((new.to_owned(), old.to_owned())),
        _ => Err("expected two ids, such as new,old".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number")?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err("expected a number of 0 or more".to_owned()) }
}

impl GateArgs {
    pub(crate) fn run(&self) -> miette::Result<Completed> {
        let options = GateOptions {
            only: self.attribute.clone(),
            candidates: self.candidates.clone(),
            tolerance: self.tolerance,
            minimum_effect: self.minimum_effect,
            unlike: self.allow_unlike,
            missing: self.allow_missing,
        };
        for out in [&self.junit, &self.markdown].into_iter().flatten() {
            spare_run(out)?;
            for input in [Some(&self.run), self.baseline.as_ref()].into_iter().flatten() {
                spare_input(input, out)?;
            }
        }
        let gated = gate(&self.run, self.baseline.as_deref(), &options)?;
        if let Some(path) = &self.junit {
            write_text(path, &self.junit(&gated))?;
        }
        if let Some(path) = &self.markdown {
            append(path, &self.markdown(&gated))?;
        }
        let failed = self.failed(&gated);
        let passed = failed.is_empty() && !self.distrusts(&gated);
        if self.json {
            let Gated { attributes, caveats, unreliable, debiased } = &gated;
            let mut said = serde_json::json!({
                "passed": passed, "gated": attributes, "caveats": caveats, "unreliable": unreliable,
            });
            if let Some(debiased) = debiased {
                said["debiased"] = (*debiased).into();
            }
            print(&visible_json(&said.to_string()))?;
        } else {
            print(&format!("{}\n\n{}", self.says(&gated, &failed), lines(&gated)))?;
        }
        Ok(if passed { Completed::Success } else { Completed::Differs })
    }

    fn fails(&self, one: &GatedScores) -> bool {
        match one.outcome {
            GateOutcome::Worse | GateOutcome::Missing => true,
            GateOutcome::Undecided | GateOutcome::Noise => self.strict,
            GateOutcome::Better | GateOutcome::Same => false,
        }
    }

    /// Whether the build fails because a run's judge is unreliable.
    fn distrusts(&self, gated: &Gated) -> bool {
        self.strict && gated.unreliable
    }

    fn failed<'g>(&self, gated: &'g Gated) -> Vec<&'g GatedScores> {
        gated.attributes.iter().filter(|one| self.fails(one)).collect()
    }

    /// The verdict in one line, with its limitations.
    fn says(&self, gated: &Gated, failed: &[&GatedScores]) -> String {
        let against = match (&self.baseline, &self.candidates) {
            (_, Some((_, old))) => format!("candidate {old}"),
            (Some(baseline), None) => baseline.display().to_string(),
            (None, None) => String::new(),
        };
        let of = counted(gated.attributes.len(), "attribute");
        let verdict = match failed {
            [] if self.distrusts(gated) => {
                format!("FAILED: nothing is worse than {against} in {of}, but the judge is unreliable")
            }
            [] => format!("PASSED: nothing is worse than {against} in {of}"),
            failed => {
                let names: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
                format!("FAILED: {} of {of} against {against}: {}", failed.len(), names.join(", "))
            }
        };
        let but =
            if gated.caveats.is_empty() { String::new() } else { format!(" · but {}", gated.caveats.join("; ")) };
        visible_line(&(verdict + &but))
    }

    /// A test suite with a case for each attribute.
    fn junit(&self, gated: &Gated) -> String {
        let failed = self.failed(gated);
        let distrusted = usize::from(self.distrusts(gated));
        let failures = failed.len() + distrusted;
        let case = |one: &GatedScores| {
            let (name, told) = (xml(&one.name), xml(&sentence(one)));
            if self.fails(one) {
                let kind = one.outcome.name();
                format!(
                    "  <testcase classname=\"probity.gate\" name=\"{name}\">\n    <failure type=\"{kind}\" \
                     message=\"{told}\"/>\n  </testcase>\n"
                )
            } else {
                format!(
                    "  <testcase classname=\"probity.gate\" name=\"{name}\">\n    <system-out>{told}</system-out>\n  \
                     </testcase>\n"
                )
            }
        };
        let cases: String = gated.attributes.iter().map(case).collect();
        let says = xml(&self.says(gated, &failed));
        let trust = if self.distrusts(gated) {
            format!(
                "  <testcase classname=\"probity.gate\" name=\"trust\">\n    <failure type=\"unreliable\" \
                 message=\"{says}\"/>\n  </testcase>\n"
            )
        } else {
            String::new()
        };
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"probity gate\" tests=\"{}\" \
             failures=\"{failures}\">\n{cases}{trust}  <system-out>{says}</system-out>\n</testsuite>\n",
            gated.attributes.len() + distrusted
        )
    }

    fn markdown(&self, gated: &Gated) -> String {
        let failed = self.failed(gated);
        let head = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
        let row = |one: &GatedScores| format!("| {} |\n", cells(one).map(|cell| markdown_text(&cell)).join(" | "));
        let rows: String = gated.attributes.iter().map(row).collect();
        format!("### probity gate\n\n{}\n\n{head}{rows}\n", markdown_text(&self.says(gated, &failed)))
    }
}

const COLUMNS: [&str; 8] =
    ["outcome", "attribute", "baseline", "now", "difference", "95% interval", "items", "items to decide"];

fn cells(one: &GatedScores) -> [String; 8] {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| fixed(value, 3));
    let interval = one.interval.map(|i| format!("{} … {}", fixed(i.low, 3), fixed(i.high, 3)));
    [
        one.outcome.name().to_owned(),
        one.name.clone(),
        number(one.means.map(|means| means[0])),
        number(one.means.map(|means| means[1])),
        number(one.difference),
        interval.unwrap_or_else(|| "–".to_owned()),
        thousands(one.items as u64),
        one.items_to_decide.map_or_else(String::new, |items| format!("about {}", thousands(items as u64))),
    ]
}

fn lines(gated: &Gated) -> String {
    let Gated { attributes: gated, debiased, .. } = gated;
    let rows: Vec<Vec<String>> = gated.iter().map(|one| cells(one).map(|cell| visible_line(&cell)).to_vec()).collect();
    let mut notes = Vec::new();
    for one in gated {
        let name = visible_line(&one.name);
        notes.extend(one.why.as_ref().map(|why| format!("{name}: undecided: {}", visible_line(why))));
        if let Some(noise) = one.noise {
            let what = "with the prompt or the presentation order";
            notes.push(format!("{name}: the difference changes by up to {} {what}", fixed(noise, 3)));
        }
        if one.missing > 0 {
            notes.push(format!("{name}: texts that lost their score: {}", one.missing));
        }
        if one.unpaired > 0 {
            notes.push(format!("{name}: items ignored because they lack a score: {}", one.unpaired));
        }
    }
    notes.extend(debiased.map(|debiased| {
        let how = if debiased { "debiased, as in the run's scores" } else { "as judged" };
        format!("Baseline and now: probability that the candidate is better, {how}.")
    }));
    let lower = gated.iter().filter(|one| one.lower_is_better).map(|one| visible_line(&one.name));
    let lower: Vec<String> = lower.collect();
    if !lower.is_empty() {
        notes.push(format!("Lower is better: {}. A difference above 0 is a lower score.", lower.join(", ")));
    }
    if gated.iter().all(|one| one.noise.is_none()) {
        notes.push("The judge's own uncertainty is unknown: it was queried in one way only.".to_owned());
    }
    [vec![table(&COLUMNS.map(str::to_owned), &rows)], notes].concat().join("\n")
}

fn sentence(one: &GatedScores) -> String {
    let [outcome, name, before, now, difference, interval, items, wanted] = cells(one);
    let wanted = if wanted.is_empty() { wanted } else { format!("; {wanted} items would decide it") };
    let why = one.why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    let lost = if one.missing > 0 { format!("; {} texts lost their score", one.missing) } else { String::new() };
    format!(
        "{name}: {outcome}, {difference} [{interval}] over {items} items ({before} before, {now} \
         now){lost}{why}{wanted}"
    )
}

/// Text for an attribute or element of XML, without characters that XML does not allow.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn append(path: &Path, text: &str) -> miette::Result<()> {
    let cannot = || FileError::context(format!("cannot write to {}", path.display()));
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(cannot())?;
    Ok(file.write_all(text.as_bytes()).map_err(cannot())?)
}
