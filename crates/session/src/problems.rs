//! Everything that is wrong with a plan, told at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::{SessionError, message};

/// What is wrong, in the order in which it was found; each thing once.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    list: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    /// In the recipe, from 1; absent on a command line.
    line: Option<usize>,
    what: String,
}

/// Where a stage and its options were written.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// The line of the stage.
    pub stage: usize,
    /// The lines of its options, by long name.
    pub options: BTreeMap<String, usize>,
    /// All options that it may have.
    pub known: BTreeSet<String>,
}

impl Lines {
    /// Options without the dashes that they have on a command line.
    fn in_its_words(&self, text: &str) -> String {
        let mut parts = text.split("--");
        let mut told = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let mark = if self.known.contains(name) { ["`", "`"] } else { ["--", ""] };
            told.extend([mark[0], name, mark[1], rest]);
        }
        told
    }
}

impl Problems {
    /// Something is wrong at a line.
    pub fn at(&mut self, line: usize, what: impl Into<String>) {
        self.push(Some(line), what.into());
    }

    /// A stage cannot run so, because of the value of `option` where that is known. The place is named where there is a
    /// recipe.
    pub fn of(
        &mut self,
        lines: Option<&Lines>,
        stage: &str,
        option: Option<&str>,
        error: &(dyn std::error::Error + 'static),
    ) {
        let told = message(error);
        let what = told.strip_prefix("error: ").unwrap_or(&told);
        let Some(lines) = lines else { return self.anywhere(what) };
        let what = lines.in_its_words(what);
        match option.and_then(|option| lines.options.get(option).map(|line| (option, *line))) {
            Some((option, line)) if what.starts_with(&format!("`{option}`")) => self.at(line, what),
            Some((option, line)) => self.at(line, format!("`{option}`: {what}")),
            None => self.at(lines.stage, format!("run `{stage}`: {what}")),
        }
    }

    /// Something is wrong, and not at a line.
    pub fn anywhere(&mut self, what: impl Into<String>) {
        self.push(None, what.into());
    }

    fn push(&mut self, line: Option<usize>, what: String) {
        let problem = Problem { line, what };
        if !self.list.contains(&problem) {
            self.list.push(problem);
        }
    }

    /// An error that lists them by line, where there are any; `file` is the recipe.
    pub fn into_result(mut self, file: Option<&str>) -> Result<(), SessionError> {
        self.list.sort_by_key(|problem| problem.line);
        let place = file.map(|file| format!(" in {file}")).unwrap_or_default();
        match self.list.as_slice() {
            [] => Ok(()),
            [Problem { line: None, what }] => Err(SessionError::Problems(what.clone())),
            [Problem { line: Some(line), what }] => {
                Err(SessionError::Problems(format!("line {line}{}: {what}", place.replace(" in ", " of "))))
            }
            several => {
                let mut told = BTreeSet::new();
                let lines: Vec<String> = several.iter().map(|problem| problem.told(&mut told)).collect();
                Err(SessionError::Problems(format!("{} problems{place}\n{}", several.len(), lines.join("\n"))))
            }
        }
    }
}

impl Problem {
    /// One of several: its hints stand below it, those that were told before left out.
    fn told<'a>(&'a self, told: &mut BTreeSet<&'a str>) -> String {
        let place = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let mut parts = self.what.split("\n\nhint: ").flat_map(|part| part.split("\nhint: "));
        let what = parts.next().unwrap_or_default().replace('\n', "\n  ");
        let hints = parts.filter(|hint| told.insert(hint));
        hints.fold(format!("  {place}{what}"), |text, hint| format!("{text}\n    hint: {hint}"))
    }
}
