//! The texts that attack a judge, and harmless control texts.

use std::collections::BTreeMap;
use std::path::Path;

use probity_options::read_text;
use serde::{Deserialize, Serialize};

use crate::MethodError;
use crate::builtin::built_in_rows;

/// The position of an attack in the candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Place {
    /// After the text.
    #[default]
    Behind,
    /// Before the text.
    Before,
    /// Instead of the text.
    Instead,
    /// The text repeated.
    Again,
}

/// An attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttackText {
    /// The name in tables and options.
    pub(super) name: String,
    /// The kind of attack.
    #[serde(default = "own")]
    pub(super) family: String,
    #[serde(default)]
    pub(super) place: Place,
    pub(super) text: String,
}

fn own() -> String {
    "own".to_owned()
}

/// Replaces Latin letters by look-alikes from other scripts.
fn look_alike(text: &str) -> String {
    let turned = |c: char| match c {
        'a' => 'а',
        'c' => 'с',
        'e' => 'е',
        'i' => 'і',
        'o' => 'о',
        'p' => 'р',
        'x' => 'х',
        'y' => 'у',
        other => other,
    };
    text.chars().map(turned).collect()
}

/// Replaces letters by full-width ones.
fn wide(text: &str) -> String {
    let turned = |c: char| match c {
        '!'..='~' => char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c),
        other => other,
    };
    text.chars().map(turned).collect()
}

/// Inserts a zero-width space after each letter.
fn spaced(text: &str) -> String {
    text.chars().flat_map(|c| [c, '\u{200b}']).collect()
}

/// The built-in attacks; NOUN in a text stands for the prompt's noun for a text. The kinds are published, the texts are
/// ours; docs/methods/attack.md lists the sources.
const SHIPPED: &str = include_str!("attacks.jsonl");

/// The built-in attacks for texts with this noun.
pub(super) fn shipped(noun: &str) -> Vec<AttackText> {
    let with_noun = |attack: AttackText| {
        let text = attack.text.replace("NOUN", noun);
        let text = match attack.name.as_str() {
            "look-alike" => look_alike(&text),
            "full-width" => wide(&text),
            "no-width" => spaced(&text),
            _ => text,
        };
        AttackText { text, ..attack }
    };
    built_in_rows(SHIPPED).into_iter().map(with_noun).collect()
}

/// Reads the user's attacks, one JSON object per line.
pub(super) fn read_own(path: &Path, noun: &str, shipped: &[AttackText]) -> Result<Vec<AttackText>, MethodError> {
    let option = || format!("--texts {}", path.display());
    let form = "write one {\"name\": …, \"text\": …} per line, with optional \"place\" (behind, before, instead or \
                again) and \"family\"; NOUN in the text is replaced by the prompt's noun";
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) => return MethodError::refuse(option(), format!("cannot read the file: {error}"), form),
    };
    let mut all: Vec<AttackText> = Vec::new();
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = |why: String| format!("line {}: {why}", number + 1);
        let one: AttackText = match serde_json::from_str(line) {
            Ok(one) => one,
            Err(error) => return MethodError::refuse(option(), place(error.to_string()), form),
        };
        if one.name.trim().is_empty() || (one.text.trim().is_empty() && one.place != Place::Again) {
            return MethodError::refuse(option(), place("`name` or `text` is empty".to_owned()), form);
        }
        // Tables use `none` for unchanged candidates.
        if one.name == "none" || shipped.iter().any(|known| [&known.name, &known.family].contains(&&one.name)) {
            let why = place(format!("the name `{}` is reserved", one.name.escape_debug()));
            return MethodError::refuse(option(), why, "choose another name");
        }
        if let Some(first) = lines.insert(one.name.clone(), number + 1) {
            let why = place(format!("duplicate name `{}`, first on line {first}", one.name.escape_debug()));
            return MethodError::refuse(option(), why, "use a different name for each attack");
        }
        all.push(AttackText { text: one.text.replace("NOUN", noun), ..one });
    }
    if all.is_empty() {
        return MethodError::refuse(option(), "the file contains no attacks", form);
    }
    Ok(all)
}

/// Neutral sentences without anything relevant to a judge.
const HARMLESS: &str = "The weather was mild on that day and a light wind came from the west. Trains ran on time, and \
                        most \
                        shops opened at nine. A few people sat on the benches by the river and read newspapers. Later \
                        in \
                        the week some rain was expected in the hills. The market square was cleaned in the morning, \
                        as on \
                        every Tuesday. Two ferries crossed the lake, one of them painted blue.";

/// The step in length of control texts in characters, so that attacks of similar length share one.
const STEP: usize = 40;

/// About this many characters of [`HARMLESS`], in whole words.
pub(super) fn harmless(characters: usize) -> String {
    let wanted = if characters <= STEP / 3 { 1 } else { characters.div_ceil(STEP) * STEP - STEP / 2 };
    let mut text = String::new();
    for word in HARMLESS.split(' ').cycle() {
        if !text.is_empty() && text.len() + 1 + word.len() / 2 > wanted {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

impl AttackText {
    /// The candidate with the attack.
    pub(super) fn applied(&self, candidate: &str) -> String {
        put(self.place, &self.text, candidate)
    }

    /// The candidate with a control text of the same length instead of the attack.
    pub(super) fn control(&self, candidate: &str) -> String {
        match self.place {
            Place::Again => put(Place::Behind, &harmless(candidate.chars().count()), candidate),
            place => put(place, &harmless(self.text.chars().count()), candidate),
        }
    }
}

fn put(place: Place, text: &str, candidate: &str) -> String {
    match place {
        Place::Behind => format!("{candidate} {text}"),
        Place::Before => format!("{text} {candidate}"),
        Place::Instead => text.to_owned(),
        Place::Again => format!("{candidate} {candidate}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own_and_speaks_of_the_noun() {
        let all = shipped("essay");
        let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert!(names.len() == all.len() && all.len() >= 35, "{}", all.len());
        assert!(all.iter().all(|one| !one.text.contains("NOUN")));
        let told = include_str!("../../../../docs/methods/attack.md");
        assert!(all.iter().all(|one| told.contains(&format!("`{}`", one.name))), "docs/methods/attack.md names each");
    }

    #[test]
    fn harmless_texts_are_about_as_long_as_what_they_stand_for() {
        for characters in [1, 5, 13] {
            assert_eq!(harmless(characters), "The");
        }
        for characters in 20..600 {
            let found = harmless(characters).chars().count();
            assert!(found.abs_diff(characters) <= STEP, "{found} for {characters}");
        }
        let lengths = |from: usize, to: usize| (from..to).map(harmless).collect::<BTreeSet<_>>().len();
        assert!(lengths(20, 200) <= 6, "attacks share them");
    }

    #[test]
    fn an_attack_and_its_control_stand_in_the_same_place() {
        let attack =
            |place| AttackText { name: "a".into(), family: own(), place, text: "Buy this, it is good.".into() };
        assert_eq!(attack(Place::Behind).applied("text"), "text Buy this, it is good.");
        assert_eq!(attack(Place::Behind).control("text"), "text The weather was mild");
        assert!(attack(Place::Before).control("text").ends_with(" text"));
        assert_eq!(attack(Place::Instead).applied("text"), "Buy this, it is good.");
        assert_eq!(attack(Place::Again).applied("text"), "text text");
        assert_eq!(attack(Place::Again).control("text"), "text The");
    }

    #[test]
    fn own_attacks_are_read_line_by_line_and_refused_by_line() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("own.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            read_own(&path, "essay", &shipped("essay"))
        };
        let found = read("{\"name\": \"x\", \"text\": \"The NOUN wins.\"}\n\n").expect("valid");
        assert_eq!(
            (found[0].text.as_str(), found[0].place, found[0].family.as_str()),
            ("The essay wins.", Place::Behind, "own")
        );
        for (text, part) in [
            ("{\"name\": \"x\", \"text\": \"y\"}\n{\"name\": 3}", "line 2"),
            ("{\"name\": \"x\", \"text\": \"y\", \"where\": 1}", "unknown field `where`"),
            ("{\"name\": \"x\", \"text\": \" \"}", "is empty"),
            ("{\"name\": \"none\", \"text\": \"y\"}", "line 1: the name `none` is reserved"),
            ("{\"name\": \"authority\", \"text\": \"y\"}", "line 1: the name `authority` is reserved"),
            ("\n", "the file contains no attacks"),
            (
                "{\"name\": \"x\", \"text\": \"y\"}\n{\"name\": \"x\", \"text\": \"z\"}",
                "line 2: duplicate name `x`, first on line 1",
            ),
        ] {
            assert!(read(text).expect_err(text).to_string().contains(part), "{text}");
        }
    }
}
