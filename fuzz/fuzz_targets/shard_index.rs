//! A shard index with arbitrary bytes is read or rejected, and names only files in its own folder.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use probity_runtime::weights::ShardIndex;

fuzz_target!(|data: &[u8]| {
    let Ok(index) = ShardIndex::parse(Path::new("model.safetensors.index.json"), data) else { return };
    for shard in index.shards() {
        assert_eq!(Path::new("folder").join(shard).parent(), Some(Path::new("folder")));
        assert!(shard != ".." && shard != ".");
    }
});
