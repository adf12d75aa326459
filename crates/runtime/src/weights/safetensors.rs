//! Weights from safetensors files, single or sharded.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use probity_kernels::WeightType;
use probity_models::{ByteTensor, RawTensor, SourceError, TensorBytes, TensorMemory, WeightSource};
use safetensors::{Dtype, SafeTensorError, SafeTensors, tensor::Metadata};
use serde::Deserialize;

use probity_lm::{nearest, parse_unique, refuse_repeated_keys};

use super::{WeightsError, map_file};
use crate::side_file;

type Owner = Arc<dyn TensorMemory>;

/// File name of the shard index in Hugging Face checkpoints.
const INDEX: &str = "model.safetensors.index.json";
/// File name of an unsharded checkpoint.
const SINGLE: &str = "model.safetensors";

/// `model.safetensors.index.json`: maps tensors to shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    /// Tensor name → file name in the index's folder.
    pub weight_map: BTreeMap<String, String>,
}

/// The index before its names are checked.
#[derive(Deserialize)]
struct RawIndex {
    weight_map: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Parses an index; `path` is for messages. Shard names must be plain file names: no folders, no `..`, nothing
    /// absolute.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, WeightsError> {
        let index: RawIndex = parse_unique(text).map_err(|source| {
            malformed(path, "the shard index", source.to_string(), "expected {\"weight_map\": {tensor: file}}")
        })?;
        if index.weight_map.is_empty() {
            return Err(malformed(path, "`weight_map`", "it has no tensors", "download the index again"));
        }
        for (tensor, shard) in &index.weight_map {
            let mut components = Path::new(shard).components();
            let plain = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
            // A single component here may be a path or a drive on another system.
            if !plain || shard.contains(['\\', '\0', ':']) {
                let why = format!("the index places tensor `{tensor}` in {shard:?}, which is not a plain file name");
                return Err(malformed(path, "`weight_map`", why, "put shards in the folder of their index"));
            }
        }
        Ok(Self { weight_map: index.weight_map })
    }

    /// File names of the shards, sorted.
    pub fn shards(&self) -> Vec<&str> {
        let mut shards: Vec<&str> = self.weight_map.values().map(String::as_str).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

struct HeaderEntry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    range: std::ops::Range<usize>,
}

/// A checkpoint of one or more safetensors files.
pub struct SafetensorsFiles {
    path: PathBuf,
    files: Vec<(PathBuf, Owner)>,
    entries: BTreeMap<String, HeaderEntry>,
}

impl SafetensorsFiles {
    /// Opens a `.safetensors` file, an index (`*.index.json`) or a folder that contains `model.safetensors` or its
    /// index.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        if path.is_dir() {
            let (single, index) = (path.join(SINGLE), path.join(INDEX));
            return if single.is_file() { Self::open_single(&single) } else { Self::open_index(&index) };
        }
        if path.extension().is_some_and(|extension| extension == "json") {
            Self::open_index(path)
        } else {
            Self::open_single(path)
        }
    }

    /// Reads the bytes of one file; `path` is for messages.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, WeightsError> {
        let mut files = Self { path: path.to_owned(), files: Vec::new(), entries: BTreeMap::new() };
        files.add(path, Arc::new(bytes))?;
        Ok(files)
    }

    /// The files with the tensors, and the index if there is one.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.files.iter().map(|(path, _)| path.clone()).collect();
        if !paths.contains(&self.path) {
            paths.push(self.path.clone());
        }
        paths
    }

    /// Name, shape, type and bytes of each tensor, in name order, for `inspect`.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>, String, usize)> {
        let listing = |(name, entry): (&String, &HeaderEntry)| {
            (name.clone(), entry.shape.clone(), format!("{:?}", entry.dtype), entry.range.len())
        };
        self.entries.iter().map(listing).collect()
    }

    fn open_single(path: &Path) -> Result<Self, WeightsError> {
        let mut files = Self { path: path.to_owned(), files: Vec::new(), entries: BTreeMap::new() };
        files.add(path, Arc::new(map_file(path)?))?;
        Ok(files)
    }

    fn open_index(path: &Path) -> Result<Self, WeightsError> {
        let text = side_file::read(path).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
        let index = ShardIndex::parse(path, &text)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut files = Self { path: path.to_owned(), files: Vec::new(), entries: BTreeMap::new() };
        for shard in index.shards() {
            let shard_path = folder.join(shard);
            if !shard_path.is_file() {
                let count = index.weight_map.values().filter(|s| *s == shard).count();
                let why = format!("shard `{shard}` with {count} tensors is missing from {}", folder.display());
                return Err(malformed(
                    path, "`weight_map`", why, "finish the download; every shard of the index is needed",
                ));
            }
            files.add(&shard_path, Arc::new(map_file(&shard_path)?))?;
        }
        files.check_against(path, &index)?;
        Ok(files)
    }

    /// Checks that every tensor is in the shard given by the index, and that the shards contain no other. Programs
    /// differ in how they treat mismatches.
    fn check_against(&self, path: &Path, index: &ShardIndex) -> Result<(), WeightsError> {
        let disagree = |why: String| {
            malformed(
                path,
                "`weight_map`",
                why,
                "download them again; the index and the shards belong to different checkpoints",
            )
        };
        for (tensor, shard) in &index.weight_map {
            let holder = self.entries.get(tensor).map(|entry| self.shard_of(entry));
            if holder.as_ref() != Some(shard) {
                let found =
                    holder.map_or_else(|| "it is in no shard".to_owned(), |holder| format!("it is in `{holder}`"));
                return Err(disagree(format!("tensor `{tensor}` should be in `{shard}`, but {found}")));
            }
        }
        match self.entries.iter().find(|(tensor, _)| !index.weight_map.contains_key(*tensor)) {
            Some((tensor, entry)) => {
                Err(disagree(format!("it does not name tensor `{tensor}`, which is in `{}`", self.shard_of(entry))))
            }
            None => Ok(()),
        }
    }

    fn entry(&self, name: &str) -> Result<&HeaderEntry, SourceError> {
        self.entries.get(name).ok_or_else(|| SourceError::Missing {
            name: name.to_owned(),
            path: self.path.clone(),
            held: self.entries.len(),
            nearest: nearest(name, self.entries.keys().map(String::as_str)).map(str::to_owned),
        })
    }

    fn bytes_of(&self, name: &str, entry: &HeaderEntry) -> Result<TensorBytes, SourceError> {
        let (path, owner) = &self.files[entry.file];
        let why = || format!("bytes {:?} are outside the file", entry.range);
        TensorBytes::slice(Arc::clone(owner), entry.range.clone()).ok_or_else(|| SourceError::Invalid {
            name: name.to_owned(),
            path: path.clone(),
            why: why(),
        })
    }

    /// Name of the file that contains a tensor.
    fn shard_of(&self, entry: &HeaderEntry) -> String {
        self.files[entry.file].0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn add(&mut self, path: &Path, owner: Owner) -> Result<(), WeightsError> {
        let bytes: &[u8] = owner.bytes();
        let (header_len, metadata) =
            SafeTensors::read_metadata(bytes).map_err(|error| unreadable(path, bytes.len(), &error))?;
        // The header was already parsed, so its length is valid; but the crate accepts duplicate keys.
        refuse_repeated_keys(&bytes[8..8 + header_len])
            .map_err(|why| malformed(path, "the safetensors header", why.to_string(), "download the file again"))?;
        self.take_entries(path, &metadata, header_len + 8)?;
        self.files.push((path.to_owned(), owner));
        Ok(())
    }

    fn take_entries(&mut self, path: &Path, metadata: &Metadata, data_start: usize) -> Result<(), WeightsError> {
        let file = self.files.len();
        for name in metadata.offset_keys() {
            let Some(info) = metadata.info(&name) else { continue };
            // Which of the two counts would depend on the order of the shards.
            if let Some(other) = self.entries.get(&name) {
                let why = format!("it is also in {}", self.files[other.file].0.display());
                return Err(malformed(
                    path,
                    &format!("tensor `{name}`"),
                    why,
                    "remove the shard that does not belong to this checkpoint",
                ));
            }
            let (start, end) = info.data_offsets;
            let entry = HeaderEntry {
                file,
                dtype: info.dtype,
                shape: info.shape.clone(),
                range: data_start + start..data_start + end,
            };
            self.entries.insert(name, entry);
        }
        Ok(())
    }
}

impl WeightSource for SafetensorsFiles {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        let entry = self.entry(name)?;
        let (path, _) = &self.files[entry.file];
        let weight_type = match entry.dtype {
            Dtype::F32 => WeightType::F32,
            Dtype::F16 => WeightType::F16,
            Dtype::BF16 => WeightType::BF16,
            other => {
                return Err(SourceError::Unsupported {
                    name: name.to_owned(),
                    path: path.clone(),
                    found: format!("{other:?}"),
                    supported: Some("F32, F16 and BF16"),
                    hint: "convert the checkpoint to F32, F16 or BF16, or use a GGUF file for quantised weights",
                });
            }
        };
        Ok(RawTensor { shape: entry.shape.clone(), weight_type, bytes: self.bytes_of(name, entry)? })
    }

    fn bytes(&self, name: &str) -> Result<ByteTensor, SourceError> {
        let entry = self.entry(name)?;
        if entry.dtype != Dtype::U8 {
            let (name, path) = (name.to_owned(), self.files[entry.file].0.clone());
            return Err(SourceError::Invalid { name, path, why: format!("expected U8, found {:?}", entry.dtype) });
        }
        Ok(ByteTensor { shape: entry.shape.clone(), bytes: self.bytes_of(name, entry)? })
    }

    fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

fn malformed(path: &Path, what: &str, why: impl Into<String>, hint: &str) -> WeightsError {
    WeightsError::Malformed { path: path.to_owned(), what: what.to_owned(), why: why.into(), hint: hint.to_owned() }
}

fn unreadable(path: &Path, len: usize, error: &SafeTensorError) -> WeightsError {
    let cut = format!(
        "download it again: it may be truncated; compare its hash with the publisher's: probity model verify {}",
        path.display()
    );
    let why = match error {
        SafeTensorError::HeaderTooSmall => format!("the file has {len} bytes, fewer than the 8 of a header length"),
        SafeTensorError::InvalidHeaderLength => format!("the header claims to be longer than the file of {len} bytes"),
        SafeTensorError::MetadataIncompleteBuffer => {
            format!("the tensors that the header lists do not end where the file of {len} bytes ends")
        }
        other => other.to_string(),
    };
    malformed(path, "the safetensors header", why, &cut)
}
