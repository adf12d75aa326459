//! Selects the files of a repository that form a model.

use super::name::{ggufs, is_gguf, meant};
use crate::weights::PartName;

/// Files besides the weights that are needed for a safetensors folder, here or by other tools that share the cache.
/// Excludes vocabularies that are also in `tokenizer.json`.
const SIDE_FILES: [&str; 12] = [
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
    "spiece.model", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json", INDEX,
    "1_Pooling/config.json",
];

/// File name of the shard index.
pub(super) const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// Why no file was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoChoice {
    /// The file does not exist; contains the available GGUF files.
    NoFile(Vec<String>),
    /// Several files match; one must be named.
    Several(Vec<String>),
    /// The files are not supported.
    Unreadable(String),
}

/// The paths among `paths` that form the model `wanted`: one GGUF file or all its parts, or safetensors with their
/// companion files. Weights come last.
pub(super) fn select<'a>(paths: &[&'a str], wanted: Option<&str>) -> Result<Vec<&'a str>, NoChoice> {
    let ggufs = ggufs(paths.iter().copied());
    let Some(wanted) = wanted else {
        let safetensors = paths.iter().any(|path| !path.contains('/') && has_extension(path, "safetensors"));
        return match ggufs.as_slice() {
            _ if safetensors => select_safetensors(paths),
            [] => Err(NoChoice::Unreadable(without_weights(paths))),
            [only] => parts(paths, only),
            several => Err(NoChoice::Several(owned(several))),
        };
    };
    if !is_gguf(wanted) && wanted.contains('.') {
        return Err(NoChoice::NoFile(owned(&ggufs)));
    }
    match meant(&ggufs, wanted).as_slice() {
        [] => Err(NoChoice::NoFile(owned(&ggufs))),
        [only] => parts(paths, only),
        several => Err(NoChoice::Several(owned(several))),
    }
}

fn owned(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
}

/// All files of a model of which `path` is one.
fn parts<'a>(paths: &[&'a str], path: &str) -> Result<Vec<&'a str>, NoChoice> {
    let find = |name: &str| {
        let found = paths.iter().copied().find(|path| *path == name);
        found.ok_or_else(|| NoChoice::Unreadable(format!("`{path}` is one of several parts, but it has no `{name}`")))
    };
    match PartName::parse(path) {
        Some(part) => (1..=part.count).map(|number| find(&part.of_number(number))).collect(),
        None => Ok(vec![find(path)?]),
    }
}

fn select_safetensors<'a>(paths: &[&'a str]) -> Result<Vec<&'a str>, NoChoice> {
    let find = |name: &str| paths.iter().copied().find(|path| *path == name);
    for needed in ["config.json", "tokenizer.json"] {
        if find(needed).is_none() {
            return Err(NoChoice::Unreadable(format!("it has safetensors but no {needed}")));
        }
    }
    let is_single = find(SINGLE).is_some();
    // An index next to a single file would name shards that are not downloaded.
    let mut chosen: Vec<&str> =
        SIDE_FILES.iter().filter_map(|name| find(name)).filter(|path| !is_single || *path != INDEX).collect();
    // By name, because files such as `consolidated.safetensors` duplicate the weights.
    let is_shard = |path: &&str| {
        path.starts_with("model-") && has_extension(path, "safetensors") && PartName::parse(path).is_some()
    };
    let mut weights: Vec<&str> =
        if is_single { vec![SINGLE] } else { paths.iter().copied().filter(is_shard).collect() };
    if weights.is_empty() || (!is_single && find(INDEX).is_none()) {
        return Err(NoChoice::Unreadable(format!(
            "it has safetensors, but neither {SINGLE} nor {INDEX} with its shards"
        )));
    }
    weights.sort_unstable();
    chosen.extend(weights.iter().map(|name| find(name).expect("chosen from these")));
    Ok(chosen)
}

fn without_weights(paths: &[&str]) -> String {
    if paths.iter().any(|path| ["bin", "pt", "pth", "ckpt"].iter().any(|pickle| has_extension(path, pickle))) {
        "it has only pickled weights, which can run code when opened and are not supported".into()
    } else {
        "it has neither safetensors nor GGUF files".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Typical root of a repository, with all the files that are not needed.
    const USUAL: [&str; 16] = [
        ".gitattributes", "README.md", "config.json", "flax_model.msgpack", "generation_config.json",
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
        "onnx/model.onnx", "original/consolidated.00.pth", "consolidated.safetensors", "pytorch_model.bin",
        "special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer_config.json",
    ];

    #[test]
    fn safetensors_come_with_what_they_need_and_nothing_else() {
        let chosen = select(&USUAL, None).expect("chosen");
        let side = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "spiece.model"];
        let rest =
            ["special_tokens_map.json", INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        assert_eq!(chosen, [side.as_slice(), rest.as_slice()].concat());
    }

    #[test]
    fn one_file_is_preferred_to_shards() {
        let paths = [&USUAL[..], &["model.safetensors"]].concat();
        let chosen = select(&paths, None).expect("chosen");
        assert!(
            chosen.ends_with(&["model.safetensors"])
                && !chosen.iter().any(|path| path.contains("00001") || *path == INDEX)
        );
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let why = |paths: &[&str]| match select(paths, None) {
            Err(NoChoice::Unreadable(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(&["config.json", "pytorch_model.bin"]).contains("pickled weights"));
        assert!(why(&["model.safetensors", "config.json"]).contains("no tokenizer.json"));
        assert!(why(&["README.md"]).contains("neither safetensors nor GGUF"));
        assert!(
            why(&["config.json", "tokenizer.json", "consolidated.safetensors"])
                .contains("neither model.safetensors nor")
        );
        assert!(why(&["m-00001-of-00002.gguf"]).contains("it has no `m-00002-of-00002.gguf`"));
        assert!(why(&["m-00002-of-00002.gguf"]).contains("it has no `m-00001-of-00002.gguf`"));
    }

    #[test]
    fn a_gguf_is_chosen_by_path_or_quantisation() {
        let paths = ["a-Q4_K_M.gguf", "a-Q8_0.gguf", "a-F16-00001-of-00002.gguf", "a-F16-00002-of-00002.gguf"];
        assert_eq!(select(&paths, Some("q8_0")).expect("label"), ["a-Q8_0.gguf"]);
        assert_eq!(select(&paths, Some("a-Q4_K_M.gguf")).expect("path"), ["a-Q4_K_M.gguf"]);
        assert!(matches!(select(&paths, None), Err(NoChoice::Several(all)) if all.len() == 3));
        assert!(matches!(select(&paths, Some("Q2_K")), Err(NoChoice::NoFile(all)) if all.len() == 3));
        assert_eq!(select(&paths, Some("F16")).expect("label"), paths[2..]);
        assert_eq!(select(&paths, Some(paths[2])).expect("path"), paths[2..]);
        assert_eq!(select(&paths[2..], None).expect("only model"), paths[2..]);
        assert!(matches!(select(&USUAL, Some("model.safetensors")), Err(NoChoice::NoFile(all)) if all.is_empty()));
    }
}
