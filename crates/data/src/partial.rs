//! A sample under construction from one or several rows.

use std::collections::BTreeMap;

use crate::line_error::{LineError, excerpt};
use crate::mapping::Field;
use crate::plan::PreparedMapping;
use crate::{Candidate, Preference, Sample, SharedText, TIE};

/// The content of one sample so far.
pub(crate) struct PartialSample {
    /// The line of its first row.
    pub(crate) place: usize,
    pub(crate) id: String,
    context: Option<(usize, SharedText)>,
    pub(crate) instruction: Option<SharedText>,
    pub(crate) texts: BTreeMap<String, SharedText>,
    /// With their line numbers.
    pub(crate) candidates: Vec<(usize, Candidate)>,
    pub(crate) references: Vec<SharedText>,
    /// As written in the file.
    pub(crate) preference: Option<String>,
}

impl PartialSample {
    pub(crate) fn new(place: usize, id: String, context: Option<SharedText>) -> Self {
        let context = context.map(|text| (place, text));
        Self {
            place,
            id,
            context,
            instruction: None,
            texts: BTreeMap::new(),
            candidates: Vec::new(),
            references: Vec::new(),
            preference: None,
        }
    }

    /// Merges a later row of the same sample. Contradictions are returned as errors and the earlier value is kept.
    pub(crate) fn add(&mut self, row: Self, plan: &PreparedMapping) -> Vec<LineError> {
        let mut wrong = Vec::new();
        let (first, id) = (self.place, excerpt(&self.id));
        let mut differs = |field: &str| {
            let column = plan
                .columns()
                .find(|(name, _)| name == field)
                .map_or(field.to_owned(), |(_, column)| column.name.clone());
            let why = format!("differs from line {first}, which has the same id `{id}`");
            wrong.push(LineError::cell(&column, field, why));
        };
        match (&self.context, row.context) {
            // An error rather than the first context: candidates would be judged by a text that they do not answer.
            (Some((_, known)), Some((_, new))) if *known != new => differs("context"),
            (None, Some(new)) => self.context = Some(new),
            _ => {}
        }
        if !fits(&mut self.instruction, row.instruction) {
            differs("instruction");
        }
        if !fits(&mut self.preference, row.preference) {
            differs("preference");
        }
        for (name, new) in row.texts {
            match self.texts.get(&name) {
                Some(known) if *known != new => differs(&Field::Text(name).to_string()),
                Some(_) => {}
                None => drop(self.texts.insert(name, new)),
            }
        }
        for (place, candidate) in row.candidates {
            match self.candidates.iter().find(|(_, known)| known.id == candidate.id) {
                Some((line, _)) => {
                    let why = format!(
                        "duplicate candidate `{}` of sample `{id}`, first on line \
                                       {line}",
                        excerpt(&candidate.id)
                    );
                    wrong.push(LineError::content("candidate-id", why));
                }
                None => self.candidates.push((place, candidate)),
            }
        }
        for reference in row.references {
            // A table with one row per candidate repeats the references in each row.
            if !self.references.contains(&reference) {
                self.references.push(reference);
            }
        }
        wrong
    }

    /// Builds the sample.
    pub(crate) fn finish(self, plan: &PreparedMapping) -> Result<Sample, Vec<LineError>> {
        let candidates: Vec<Candidate> = self.candidates.into_iter().map(|(_, candidate)| candidate).collect();
        let preference =
            self.preference.map(|value| preferred(&value, &candidates, plan)).transpose().map_err(|e| vec![e])?;
        let context = self.context.map(|(_, text)| text).unwrap_or_default();
        Ok(Sample {
            id: self.id,
            context,
            instruction: self.instruction,
            texts: self.texts,
            candidates,
            references: self.references,
            preference,
        })
    }
}

/// Whether a row agrees with earlier rows, if any has a value.
fn fits<T: PartialEq>(known: &mut Option<T>, new: Option<T>) -> bool {
    match (&known, new) {
        (Some(known), Some(new)) => *known == new,
        (None, Some(new)) => {
            *known = Some(new);
            true
        }
        (_, None) => true,
    }
}

/// The preferred candidate: a mapped value, a candidate's id or column, `tie`, or a letter if the candidates are
/// columns or a list.
fn preferred(value: &str, candidates: &[Candidate], plan: &PreparedMapping) -> Result<Preference, LineError> {
    let has = |id: &str| candidates.iter().any(|candidate| candidate.id == id);
    let direct = |text: &str| match text {
        id if has(id) => Some(Preference::Candidate(id.to_owned())),
        column if plan.candidate_for(column).is_some_and(has) => {
            plan.candidate_for(column).map(|id| Preference::Candidate(id.to_owned()))
        }
        tie if tie.eq_ignore_ascii_case(TIE) => Some(Preference::Tie),
        _ => None,
    };
    let wrong = |why: String| -> LineError {
        let column = plan
            .columns()
            .find(|(field, _)| field == "preference")
            .map_or("preference".to_owned(), |(_, c)| c.name.clone());
        LineError::cell(&column, "preference", why)
    };
    let ids =
        || candidates.iter().map(|candidate| format!("`{}`", excerpt(&candidate.id))).collect::<Vec<_>>().join(", ");
    // The user's mapping comes first, even over a candidate of that name.
    if let Some((_, meaning)) = plan.meanings.iter().find(|(known, _)| known == value) {
        // If candidates have ids of their own, a mapped value may be a position instead.
        let place = || candidates.get(meaning.parse::<usize>().ok().filter(|_| !plan.gathers)?.checked_sub(1)?);
        let placed = || place().map(|candidate| Preference::Candidate(candidate.id.clone()));
        return direct(meaning).or_else(placed).ok_or_else(|| {
            wrong(format!("`{}` is mapped to `{}`, but the candidates are {}", excerpt(value), excerpt(meaning), ids()))
        });
    }
    if let Some(found) = direct(value) {
        return Ok(found);
    }
    // A letter that equals a candidate's id in another case is ambiguous, so it is an error.
    let is_name = candidates.iter().any(|candidate| candidate.id.eq_ignore_ascii_case(value));
    if let ([letter], false) = (value.as_bytes(), plan.gathers || is_name)
        && let Some(candidate) = candidates.get(usize::from(letter.to_ascii_uppercase().wrapping_sub(b'A')))
    {
        return Ok(Preference::Candidate(candidate.id.clone()));
    }
    let counted = |from: usize| {
        let example = |(index, candidate): (usize, &Candidate)| {
            format!("--map preference.{}={}", from + index, excerpt(&candidate.id))
        };
        candidates.iter().take(2).enumerate().map(example).collect::<Vec<_>>().join(" ")
    };
    let value = excerpt(value);
    // Numbers are not guessed: 1 is the second candidate if counting starts at 0, and the first if it starts at 1.
    Err(if value.parse::<f64>().is_ok() {
        wrong(format!(
            "`{value}` is ambiguous, because candidates may count from 0 or from 1; they are \
                       {}",
            ids()
        ))
        .with_hint(format!("map each value: {} to count from 0, {} to count from 1", counted(0), counted(1)))
    } else {
        wrong(format!("unknown candidate `{value}`; the candidates are {}", ids()))
            .with_hint(format!("map it: --map preference.{value}=CANDIDATE or --map preference.{value}=tie"))
    })
}
