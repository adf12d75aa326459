//! The report page: one HTML file that loads nothing else.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use probity_analysis::{Cell, Table};
use sha2::{Digest, Sha256};

use crate::plot::{Figure, palette};
use crate::report::{ReportPart, RunReport};
use crate::text::{cell_text, counted, thousands, visible, visible_line};
use crate::{ReportError, explorer, tables};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Suffixes of the ids of tables that have their own position in a run's section.
const PLACED: [&str; 3] = ["-about", "-outcomes", "-figures"];

impl RunReport {
    /// Writes the page, with the samples last, block by block. Output is deterministic.
    pub fn write_html(&self, out: &mut dyn Write) -> Result<(), ReportError> {
        // Joined before hashing, because the policy allows exactly this text.
        let style = format!("{}{STYLE}", palette::page_style());
        let policy = format!(
            // Only this style and script are allowed, so injected markup could not run code.
            "default-src 'none'; style-src '{}'; script-src '{}'; img-src 'none'; base-uri 'none'; form-action 'none'",
            policy_hash(&style),
            policy_hash(SCRIPT)
        );
        let head = html! {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="referrer" content="no-referrer";
            meta name="color-scheme" content="light dark";
            title { (visible_line(&self.options.title)) }
            style { (PreEscaped(&style)) }
        };
        write!(out, "{}<html lang=\"en\"><head>{}</head><body>", DOCTYPE.into_string(), head.into_string())?;
        write!(out, "{}", self.body().into_string())?;
        explorer::write(self, out)?;
        write!(out, "<script>{SCRIPT}</script></body></html>")?;
        Ok(out.flush()?)
    }

    fn body(&self) -> Markup {
        html! {
            a.skip href="#main" { "Skip to figures" }
            header.top {
                div.wide {
                    h1 { (visible_line(&self.options.title)) }
                    (self.navigation())
                    button #theme type="button" hidden { "Theme: system" }
                }
            }
            main #main .wide {
                @if self.parts.len() > 1 {
                    section #across aria-labelledby="across-h" {
                        h2 #across-h { "Comparison of runs" }
                        @for table in &self.across { (show_table(table, 3)) }
                        (figures(&self.across_figures))
                    }
                }
                @for (number, part) in self.parts.iter().enumerate() { (run(number + 1, part)) }
                (self.samples())
            }
            footer.wide { p { "Made by probity. This file is self-contained and makes no network requests." } }
        }
    }

    fn navigation(&self) -> Markup {
        html! {
            nav aria-label="Sections" {
                @if self.parts.len() > 1 { a href="#across" { "Comparison" } }
                @for (number, part) in self.parts.iter().enumerate() {
                    a href=(format!("#run{}", number + 1)) { bdi { (visible_line(part.run.name())) } }
                }
                a href="#samples" { (self.nouns()) }
            }
        }
    }

    /// Plural noun with a capital letter, such as `Samples`.
    fn nouns(&self) -> &'static str {
        if self.noun() == "sample" { "Samples" } else { "Items" }
    }

    fn samples(&self) -> Markup {
        let held: usize = explorer::held(self).iter().sum();
        let all: usize = self.parts.iter().map(|part| part.facts.samples.len()).sum();
        html! {
            section #samples aria-labelledby="samples-h" {
                h2 #samples-h { (self.nouns()) }
                @if held < all {
                    p.note { "This page contains the first \
                              " (thousands(held as u64)) " of " (counted(all, self.noun())) "; --samples sets the \
                                                                                             limit. Figures and \
                                                                                             tables cover all." }
                }
                noscript { p.note { (self.nouns()) " are listed only with JavaScript. Figures and tables do not need \
                                                    it." } }
                p.print-only { (self.nouns()) " are shown on screen only." }
                div #explorer hidden {}
            }
        }
    }
}

/// `sha256-…`, the hash of a script or style for a content security policy.
pub fn policy_hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// Section of a run: summary line, figures, plots, the method's tables, and facts about the run.
fn run(number: usize, part: &ReportPart) -> Markup {
    let heading = format!("run{number}-h");
    let signature = part.run.signature();
    let place = |end: &str| part.tables.iter().find(|table| table.id.ends_with(end));
    let others: Vec<&Table> =
        part.tables.iter().filter(|table| !PLACED.iter().any(|end| table.id.ends_with(end))).collect();
    html! {
        section.run id=(format!("run{number}")) aria-labelledby=(heading) {
            h2 id=(heading) { bdi { (visible_line(part.run.name())) } " " span.kind { (visible_line(part.run.method())) } }
            (verdict(part))
            p.lead { (lead(part)) }
            @if !tables::is_finished(&part.run) { p.warning { strong { "Unfinished run: " } (visible_line(&tables::state(&part.run))) } }
            @if let Some(main) = others.first() { (show_table(main, 3)) }
            div.pair {
                @for table in [place("-figures"), place("-outcomes")].into_iter().flatten() { (show_table(table, 3)) }
            }
            (figures(&part.figures))
            @if !part.notes.is_empty() { ul.notes { @for note in &part.notes { li { (visible(note)) } } } }
            @if others.len() > 1 {
                h3 { "Details" }
                @for table in &others[1..] { (show_table(table, 4)) }
            }
            @if let Some(about) = place("-about") { (show_table(about, 3)) }
            @if let Some(signature) = signature {
                p.signature { span.soft { "Signature " } code { (visible_line(signature)) } }
            }
        }
    }
}

/// Conclusion of the run, how far to trust it, and why.
fn verdict(part: &ReportPart) -> Markup {
    let all = part.run.summary["verdict"].as_array().map(Vec::as_slice).unwrap_or_default();
    html! {
        @for one in all {
            @let trust = one["trust"].as_str().unwrap_or_default();
            @let class = ["reliable", "caution"].into_iter().find(|known| *known == trust).unwrap_or("unreliable");
            div.verdict .(class) role="note" {
                @if let Some(about) = one["about"].as_str() { p.about { bdi { (visible_line(about)) } } }
                p { bdi { (visible_line(one["says"].as_str().unwrap_or_default())) } }
                @if let Some(agreement) = one["agreement"].as_str() { p { bdi { (visible_line(agreement)) } } }
                p.trust { strong { (visible_line(trust)) } ": " (visible_line(one["because"].as_str().unwrap_or_default())) }
            }
        }
    }
}

/// `smollm2-135m-instruct, exact on cpu · 5 samples · 1,200 answers`.
fn lead(part: &ReportPart) -> String {
    let model = part.run.text("/model/name").map(|name| {
        let how = part.run.text("/model/precision").zip(part.run.text("/model/device"));
        how.map_or(name.to_owned(), |(precision, device)| format!("{name}, {precision} on {device}"))
    });
    // Scores of a metric are not answers.
    let what = if part.run.manifest["model"].is_null() { "score" } else { "answer" };
    let samples = part.run.reads_samples().then(|| counted(part.facts.samples.len(), "sample"));
    // A run of `meta` has no scores of its own.
    let answers = (part.answers() > 0).then(|| counted(part.answers(), what));
    let all = model.into_iter().chain(samples).chain(answers);
    visible_line(&all.collect::<Vec<_>>().join(" · "))
}

fn figures(figures: &[Figure]) -> Markup {
    html! {
        @if !figures.is_empty() {
            div.figures {
                @for figure in figures {
                    figure.large[figure.width > 470.0] {
                        @if figure.width > 470.0 {
                            div.drawing role="region" aria-label=(visible_line(&figure.title)) tabindex="0" { (figure.inline()) }
                        } @else {
                            (figure.inline())
                        }
                        figcaption { strong { (visible_line(&figure.title)) ". " } (visible_line(&figure.caption)) }
                    }
                }
            }
        }
    }
}

fn show_cell(cell: &Cell) -> Markup {
    let text = visible_line(&cell_text(cell));
    html! {
        @match cell {
            Cell::Sample { run, sample } => a href=(format!("#sample/{run}/{}", encoded(sample))) { bdi { (text) } },
            _ => bdi { (text) },
        }
    }
}

/// Percent-encodes a URL component.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn show_table(table: &Table, level: u8) -> Markup {
    let id = format!("{}-h", table.id);
    let narrow = table.columns.first().is_some_and(String::is_empty);
    html! {
        div.table {
            @if level == 3 { h3 id=(id) { (visible_line(&table.title)) } } @else { h4 id=(id) { (visible_line(&table.title)) } }
            @if !table.columns.is_empty() {
                div.scroll role="region" aria-labelledby=(id) tabindex="0" {
                    table.facts[narrow] {
                        @if !narrow {
                            thead { tr { @for (column, name) in table.columns.iter().enumerate() {
                                th scope="col" .number[table.is_numeric(column)] { (visible_line(name)) }
                            } } }
                        }
                        tbody { @for row in &table.rows { tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column == 0 {
                                    th scope="row" .number[table.is_numeric(0)] { (show_cell(cell)) }
                                } @else {
                                    td .number[table.is_numeric(column)] { (show_cell(cell)) }
                                }
                            }
                        } } }
                    }
                }
            }
            @for note in &table.notes { p.note { (visible_line(note)) } }
        }
    }
}
