//! A shard index of any bytes is read or refused, and names only files of its own folder.
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
