//! Collects all problems of a plan into one error.

use std::collections::{BTreeMap, BTreeSet};

use miette::Diagnostic;

use crate::{ErrorText, SessionError};

/// Problems in the order found, without duplicates.
#[derive(Debug, Clone, Default)]
pub struct PlanProblems {
    list: Vec<PlanProblem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PlanProblem {
    /// Line of the recipe, from 1; absent for a command.
    line: Option<usize>,
    told: ErrorText,
}

/// Lines of a recipe that define a stage and its options.
#[derive(Debug, Clone, Default)]
pub struct StageLines {
    /// The line of the stage.
    pub stage: usize,
    /// The lines of its options, by long name.
    pub options: BTreeMap<String, usize>,
    /// All options that it accepts.
    pub known: BTreeSet<String>,
}

impl StageLines {
    /// Removes the dashes that options have on a command line.
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

impl PlanProblems {
    /// Adds a problem at a line.
    pub fn at(&mut self, line: usize, what: impl Into<ErrorText>) {
        self.push(Some(line), what.into());
    }

    /// Adds a problem of a stage, caused by the value of `option` if known. In a recipe it has a line.
    pub fn add_stage_error(
        &mut self,
        lines: Option<&StageLines>,
        stage: &str,
        option: Option<&str>,
        error: &dyn Diagnostic,
    ) {
        let ErrorText { what, hints } = ErrorText::from_error(error);
        let Some(lines) = lines else { return self.anywhere(ErrorText { what, hints }) };
        let hints = hints.iter().map(|hint| lines.in_its_words(hint)).collect();
        let what = lines.in_its_words(&what);
        let (line, what) = match option.and_then(|option| lines.options.get(option).map(|line| (option, *line))) {
            Some((option, line)) if what.starts_with(&format!("`{option}`")) => (line, what),
            Some((option, line)) => (line, format!("`{option}`: {what}")),
            None => (lines.stage, format!("run `{stage}`: {what}")),
        };
        self.at(line, ErrorText { what, hints });
    }

    /// Adds a problem without a line.
    pub fn anywhere(&mut self, what: impl Into<ErrorText>) {
        self.push(None, what.into());
    }

    fn push(&mut self, line: Option<usize>, told: ErrorText) {
        let problem = PlanProblem { line, told };
        if !self.list.contains(&problem) {
            self.list.push(problem);
        }
    }

    /// An error that lists the problems by line, if any; `file` is the recipe.
    pub fn into_result(mut self, file: Option<&str>) -> Result<(), SessionError> {
        self.list.sort_by_key(|problem| problem.line);
        let place = file.map(|file| format!(" in {file}")).unwrap_or_default();
        let problems = |what: String, hints: &[String]| {
            let hints = (!hints.is_empty()).then(|| hints.join("\n"));
            Err(SessionError::Problems { what, hints })
        };
        match self.list.as_slice() {
            [] => Ok(()),
            [PlanProblem { line: None, told }] => problems(told.what.clone(), &told.hints),
            [PlanProblem { line: Some(line), told }] => {
                problems(format!("line {line}{}: {}", place.replace(" in ", " of "), told.what), &told.hints)
            }
            several => {
                let mut before = BTreeSet::new();
                let lines: Vec<String> = several.iter().map(|problem| problem.one_of_several(&mut before)).collect();
                problems(format!("{} problems{place}\n{}", several.len(), lines.join("\n")), &[])
            }
        }
    }
}

impl PlanProblem {
    /// The problem with its hints below it, without hints already shown.
    fn one_of_several<'a>(&'a self, before: &mut BTreeSet<&'a str>) -> String {
        let place = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let what = self.told.what.replace('\n', "\n  ");
        let hints = self.told.hints.iter().filter(|hint| before.insert(hint));
        hints.fold(format!("  {place}{what}"), |text, hint| format!("{text}\n    hint: {hint}"))
    }
}
