//! Links of all pages have existing targets, and the book lists every page of its folder once. Network links are not
//! fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::readme::{Page, page, pages, root};

/// Pages with links outside the book.
const OTHERS: [&str; 11] = [
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "fuzz/README.md", "samples/README.md",
    "scripts/README.md", "scripts/bench/README.md", "scripts/goldens/README.md", "scripts/hardening/README.md",
    "scripts/report-browser/README.md",
];

fn all() -> Vec<Page> {
    OTHERS.iter().map(|name| page(name)).chain(pages("docs")).collect()
}

/// Lines outside code blocks, without inline code.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) => {
                if ticks.len() >= open.len() && line == ticks {
                    fence = None;
                }
                None
            }
            None if ticks.len() >= 3 => {
                fence = Some(ticks);
                None
            }
            None => Some((at + 1, line.to_owned())),
        }
    })
}

/// The line without inline code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// `](target)` and `src`s of the line.
fn targets(line: &str) -> Vec<String> {
    without_code(line).split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchor of a heading, which GitHub and `mdBook` form alike.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    // Only the text of a link in a heading counts.
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text += &before.replacen('[', "", 1);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text += rest;
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings =
        prose(text).filter_map(|(_, line)| line.starts_with('#').then(|| slug(line.trim_start_matches('#'))));
    headings
        .map(|slug| {
            let count = seen.entry(slug.clone()).or_default();
            *count += 1;
            if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
        })
        .collect()
}

/// `a/../b` is `b`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
        plain
    })
}

/// Why the target of a link does not exist.
fn wrong(page: &Page, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let folder = Path::new(&page.name).parent().expect("a page lies in a folder");
    let path = if file.is_empty() { PathBuf::from(&page.name) } else { plain(&folder.join(file)) };
    let Ok(metadata) = std::fs::metadata(root().join(&path)) else {
        return Some(format!(
            "{} is not \
        there",
            path.display()
        ));
    };
    let anchor = anchor?;
    if !metadata.is_file() {
        return Some(format!("{} has no headings", path.display()));
    }
    let text = std::fs::read_to_string(root().join(&path)).expect("a page");
    (!anchors(&text).contains(anchor)).then(|| format!("{} has no heading #{anchor}", path.display()))
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    let mut found = Vec::new();
    for page in all() {
        for (line, text) in prose(&page.text) {
            for target in targets(&text) {
                links += 1;
                found.extend(wrong(&page, &target).map(|why| format!("{} line {line}: {target}: {why}", page.name)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{links} links");
    assert!(links > 200, "only {links} links were found");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = Page { name: "docs/made-up.md".to_owned(), text: String::new() };
    assert_eq!(wrong(&page, "limits.md#models"), None);
    assert_eq!(wrong(&page, "../README.md"), None);
    assert!(wrong(&page, "no-such.md").is_some_and(|why| why.contains("docs/no-such.md is not there")));
    assert!(wrong(&page, "limits.md#none").is_some_and(|why| why.contains("no heading #none")));
    assert_eq!(targets("[a](b.md) and `[c](d.md)` and ![e](f.svg)"), ["b.md", "f.svg"]);
    assert_eq!(slug(" Order among fewer candidates (Table 8)"), "order-among-fewer-candidates-table-8");
}

#[test]
fn the_book_has_every_page_once() {
    let summary = page("docs/SUMMARY.md");
    let listed: Vec<String> =
        prose(&summary.text).flat_map(|(_, line)| targets(&line)).map(|target| format!("docs/{target}")).collect();
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let there: Vec<String> =
        pages("docs").into_iter().map(|page| page.name).filter(|name| name != "docs/SUMMARY.md").collect();
    assert_eq!(once, there.iter().collect::<BTreeSet<_>>());
}

/// `scripts/reference` fails unless each method has a page, and writes one for each metric.
#[test]
fn every_method_and_metric_is_listed_where_people_choose() {
    let readme = page("README.md").text;
    let (methods, metrics) = (page("docs/methods.md").text, page("docs/metrics.md").text);
    for page in pages("docs/methods") {
        let name = page.name.strip_prefix("docs/").expect("a page of the book");
        assert!(page.text.contains("\n```sh\nprobity "), "{name} has no example");
        assert!(methods.contains(&format!("]({name}")) && readme.contains(&format!("](docs/{name}")), "{name}");
    }
    for page in pages("docs/reference/metrics") {
        let row = page.name.strip_prefix("docs/").expect("a page of the book");
        assert!(metrics.contains(row) && readme.contains(row), "{row}");
    }
}

/// Results are comparable with a paper's only if the prompts are, so each page names the source of its wording.
#[test]
fn pages_beside_a_papers_figures_say_whose_wording_their_prompts_have() {
    for name in [
        "methods/checklist", "methods/compare", "methods/g-eval", "methods/gpt-score", "methods/judge",
        "methods/parapluie", "methods/prompt-scoring", "methods/revise", "methods/reviseval", "methods/revision",
        "comparative-table", "reviseval-table",
    ] {
        let page = page(&format!("docs/{name}.md"));
        let says = |line: &str| line.contains("worded by us") || (line.contains("wording") && line.contains("ours"));
        assert!(prose(&page.text).any(|(_, line)| says(&line)), "{}", page.name);
    }
}
