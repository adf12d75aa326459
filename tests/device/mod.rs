//! The device and goldens of device tests. `scripts/gpu/run` copies their binaries to a machine with a GPU.

use std::path::{Path, PathBuf};

use probity_models::DeviceChoice;

/// `PROBITY_TEST_DEVICE`, or candle's CPU device, which has the operations of the others.
pub(crate) fn device() -> DeviceChoice {
    let named = std::env::var("PROBITY_TEST_DEVICE");
    named.map_or(DeviceChoice::CandleCpu, |name| name.parse().expect("PROBITY_TEST_DEVICE is a device"))
}

/// `PROBITY_TEST_GOLDENS`, or the folder of the compiled checkout.
pub(crate) fn goldens() -> PathBuf {
    let compiled = || {
        let places = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/goldens"));
        places.into_iter().find(|folder| folder.is_dir()).expect("goldens are part of the repository")
    };
    std::env::var_os("PROBITY_TEST_GOLDENS").map_or_else(compiled, PathBuf::from)
}
