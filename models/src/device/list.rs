//! Device lists: copies of a model, each on one device or divided over several.

use std::fmt;
use std::mem::discriminant;
use std::str::FromStr;

use super::{DeviceChoice, DeviceError};

/// Maximum number of devices in a list.
const MOST: usize = 8;

/// The name for all CUDA devices.
const ALL_CUDA: &str = "cuda:all";

/// Represents all CUDA devices until they are counted.
const FIRST_CUDA: &[DeviceChoice] = &[DeviceChoice::Cuda(0)];

/// Devices of one kind. Each holds a copy of the model, or, if `stages` is above one, each group of `stages`
/// consecutive devices holds the layers of one copy in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceList(Devices);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Devices {
    /// The first `count` entries are used; each copy takes `stages` devices.
    // An array, so that a model's options are `Copy`.
    Listed { devices: [DeviceChoice; MOST], count: usize, stages: usize },
    /// All CUDA devices of the machine, not counted yet.
    AllCuda,
}

/// Why a device list is invalid.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DeviceListError {
    /// A device cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    // Boxed to keep the error types of model loading small.
    Device(Box<DeviceError>),
    /// Too many devices.
    #[error("{count} devices exceed the limit of {MOST}")]
    #[diagnostic(help("list at most {MOST} devices, and start another run for the others, such as with --shard 1/2"))]
    Many {
        /// The number of devices.
        count: usize,
    },
    /// Copies have different numbers of devices.
    #[error("`{list}` divides one copy of the model over {stages} and another over {others} devices")]
    #[diagnostic(help(
        "use the same number of devices for each copy: --device cuda:0+cuda:1,cuda:2+cuda:3 has two copies on two \
         devices each"
    ))]
    Uneven {
        /// The list.
        list: String,
        /// The number of devices of the first copy.
        stages: usize,
        /// The number of devices of another copy.
        others: usize,
    },
    /// A device is missing next to a separator.
    #[error("`{list}` has no device {side} `{separator}`")]
    #[diagnostic(help(
        "name a device on both sides: cuda:0,cuda:1 copies the model to each, cuda:0+cuda:1 divides its layers"
    ))]
    Missing {
        /// The list.
        list: String,
        /// `before` or `after`.
        side: &'static str,
        /// `+` or `,`.
        separator: char,
    },
    /// `cuda:all` combined with other devices.
    #[error("{ALL_CUDA} cannot be combined with other devices: `{list}`")]
    #[diagnostic(help(
        "use --device {ALL_CUDA} to copy the model to every CUDA device, or --device cuda:0+cuda:1 to divide its layers"
    ))]
    AllListed {
        /// The list.
        list: String,
    },
    /// Devices of different kinds, whose results differ in their last digits.
    #[error("`{list}` mixes kinds of devices")]
    #[diagnostic(help("list devices of one kind, such as --device cuda:0,cuda:1"))]
    Kinds {
        /// The list.
        list: String,
    },
    /// A repeated device.
    #[error("{device} is listed twice")]
    #[diagnostic(help("{}", once(*device)))]
    Repeated {
        /// The device.
        device: DeviceChoice,
    },
}

impl From<DeviceError> for DeviceListError {
    fn from(error: DeviceError) -> Self {
        Self::Device(Box::new(error))
    }
}

/// A hint how to use a device's full capacity instead of listing it twice.
fn once(device: DeviceChoice) -> String {
    match device {
        DeviceChoice::Cpu => {
            "use --device cpu once; it uses all processors, and --compute threads sets their number".to_owned()
        }
        DeviceChoice::Cuda(_) => format!("list each device once; {ALL_CUDA} is every CUDA device"),
        DeviceChoice::CandleCpu | DeviceChoice::Metal => format!("use --device {device}"),
    }
}

impl Default for DeviceList {
    fn default() -> Self {
        DeviceChoice::default().into()
    }
}

impl From<DeviceChoice> for DeviceList {
    fn from(device: DeviceChoice) -> Self {
        let mut devices = [DeviceChoice::default(); MOST];
        devices[0] = device;
        Self(Devices::Listed { devices, count: 1, stages: 1 })
    }
}

impl DeviceList {
    /// Creates a list with `stages` devices per copy; too many devices are an error.
    fn new(listed: &[DeviceChoice], stages: usize) -> Result<Self, DeviceListError> {
        let mut devices = [DeviceChoice::default(); MOST];
        let count = listed.len();
        devices.get_mut(..count).ok_or(DeviceListError::Many { count })?.copy_from_slice(listed);
        Ok(Self(Devices::Listed { devices, count, stages }))
    }

    /// The devices of each copy, in layer order. `cuda:all` that is not [counted](Self::counted) yields the first
    /// device.
    pub fn copies(&self) -> impl ExactSizeIterator<Item = &[DeviceChoice]> {
        match &self.0 {
            Devices::Listed { devices, count, stages } => devices[..*count].chunks(*stages),
            Devices::AllCuda => FIRST_CUDA.chunks(1),
        }
    }

    /// All devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceChoice> {
        self.copies().flatten().copied()
    }

    /// The first device; all are of the same kind.
    pub fn first(&self) -> DeviceChoice {
        self.first_copy()[0]
    }

    /// The devices of the first copy.
    pub fn first_copy(&self) -> &[DeviceChoice] {
        // A list of devices is never empty.
        self.copies().next().unwrap_or(&[DeviceChoice::Cpu])
    }

    /// The first copy alone.
    #[must_use]
    pub fn one_copy(self) -> Self {
        let copy = self.first_copy();
        Self::new(copy, copy.len()).unwrap_or(self)
    }

    /// Whether there is more than one copy.
    pub fn has_copies(&self) -> bool {
        self.copies().len() > 1
    }

    /// Number of devices that share one memory: all for `candle-cpu`, otherwise one.
    pub fn in_one_memory(&self) -> usize {
        if self.first() == DeviceChoice::CandleCpu { self.devices().count() } else { 1 }
    }

    /// Replaces `cuda:all` by the machine's CUDA devices, if there are any.
    #[must_use]
    pub fn counted(self) -> Self {
        if self.0 != Devices::AllCuda {
            return self;
        }
        let devices = DeviceChoice::all_cuda();
        // Without any, opening the first one reports what is missing.
        if devices.is_empty() { self } else { Self::new(&devices, 1).unwrap_or(self) }
    }

    /// Checks that the build and the machine support all devices, and that a model can be copied to each.
    pub fn check(&self) -> Result<(), DeviceListError> {
        let devices: Vec<DeviceChoice> = self.devices().collect();
        if devices.iter().any(|device| discriminant(device) != discriminant(&devices[0])) {
            return Err(DeviceListError::Kinds { list: self.to_string() });
        }
        let repeated = |(place, device): &(usize, &DeviceChoice)| devices[..*place].contains(device);
        match devices.iter().enumerate().find(repeated) {
            Some((_, device)) if *device != DeviceChoice::CandleCpu => {
                Err(DeviceListError::Repeated { device: *device })
            }
            _ => Ok(devices.iter().try_for_each(|device| device.check()).map_err(|error| self.named(error))?),
        }
    }

    /// Reports `cuda:all` instead of the first card if the user entered `cuda:all`.
    fn named(&self, mut error: DeviceError) -> DeviceError {
        if let (Devices::AllCuda, DeviceError::NotBuilt { device, .. } | DeviceError::Unavailable { device, .. }) =
            (self.0, &mut error)
        {
            ALL_CUDA.clone_into(device);
        }
        error
    }
}

impl DeviceChoice {
    /// The machine's CUDA devices, up to the maximum of a list.
    pub fn all_cuda() -> Vec<Self> {
        (0..cuda_devices().min(MOST)).map(Self::Cuda).collect()
    }
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> usize {
    let count = candle_core::cuda_backend::cudarc::driver::CudaContext::device_count();
    // Zero without a driver.
    count.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> usize {
    0
}

/// The devices of a copy, `cuda:0+cuda:1`.
#[derive(Debug, Clone, Copy)]
pub struct StageNames<'a>(pub &'a [DeviceChoice]);

impl fmt::Display for StageNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(place, device)| {
            let plus = if place > 0 { "+" } else { "" };
            write!(f, "{plus}{device}")
        })
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Devices::AllCuda {
            return f.write_str(ALL_CUDA);
        }
        self.copies().enumerate().try_for_each(|(place, copy)| {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{}", StageNames(copy))
        })
    }
}

impl FromStr for DeviceList {
    type Err = DeviceListError;

    /// Parses copies separated by commas, with the devices of each joined by `+`, or `cuda:all`. [`check`](Self::check)
    /// tests whether they can be used together.
    fn from_str(text: &str) -> Result<Self, DeviceListError> {
        if text == ALL_CUDA {
            return Ok(Self(Devices::AllCuda));
        }
        complete(text)?;
        let mut devices: Vec<DeviceChoice> = Vec::new();
        let mut first_copy = None;
        for copy in text.split(',') {
            let before = devices.len();
            for name in copy.split('+') {
                devices.push(name.trim().parse()?);
            }
            let (others, stages) = (devices.len() - before, *first_copy.get_or_insert(devices.len()));
            if others != stages {
                return Err(DeviceListError::Uneven { list: text.to_owned(), stages, others });
            }
        }
        Self::new(&devices, first_copy.unwrap_or(1))
    }
}

/// An error if a name is missing, or if `cuda:all` is combined with others.
fn complete(text: &str) -> Result<(), DeviceListError> {
    let list = || text.to_owned();
    let mut before = None;
    for part in text.split_inclusive(['+', ',']) {
        let separator = part.chars().next_back().filter(|c| matches!(c, '+' | ','));
        let name = part.trim_end_matches(['+', ',']).trim();
        match (name, before, separator) {
            ("", Some(separator), _) => {
                return Err(DeviceListError::Missing { list: list(), side: "after", separator });
            }
            ("", None, Some(separator)) => {
                return Err(DeviceListError::Missing { list: list(), side: "before", separator });
            }
            (ALL_CUDA, ..) => return Err(DeviceListError::AllListed { list: list() }),
            _ => before = separator,
        }
    }
    // The last name is empty if the text ends with a separator, and is then missing in the list.
    before.map_or(Ok(()), |separator| Err(DeviceListError::Missing { list: list(), side: "after", separator }))
}

#[cfg(test)]
mod tests {
    use miette::Diagnostic as _;

    use super::*;

    fn list(text: &str) -> DeviceList {
        text.parse().expect("devices")
    }

    fn refused(text: &str) -> (String, String) {
        let error = list(text).check().expect_err("cannot be used");
        (error.to_string(), error.help().map(|hint| hint.to_string()).unwrap_or_default())
    }

    #[test]
    fn a_list_is_read_back_from_its_text() {
        let divided = ["cuda:1+cuda:0", "cuda:0+cuda:1,cuda:2+cuda:3"];
        for text in
            ["cpu", "candle-cpu,candle-cpu", "cuda:1,cuda:0", "cuda:0,cuda:1,cuda:7", ALL_CUDA].iter().chain(&divided)
        {
            assert_eq!(list(text).to_string(), *text);
        }
        assert_eq!(list("cuda, cuda:1").to_string(), "cuda:0,cuda:1");
        assert_eq!(list("cuda:3,cuda:1").first(), DeviceChoice::Cuda(3));
        assert_eq!(DeviceList::default(), list("cpu"));
        assert!(list("candle-cpu,candle-cpu").has_copies() && !list("metal").has_copies());
        assert_eq!([list("candle-cpu,candle-cpu"), list("cuda:0,cuda:1")].map(|list| list.in_one_memory()), [2, 1]);
    }

    #[test]
    fn a_copy_may_have_several_devices() {
        let of = |text: &str| -> Vec<String> { list(text).copies().map(|copy| StageNames(copy).to_string()).collect() };
        assert_eq!(of("cuda:0+cuda:1,cuda:2 + cuda"), ["cuda:0+cuda:1", "cuda:2+cuda:0"]);
        let divided = list("cuda:2+cuda:1");
        assert!(!divided.has_copies() && divided.first() == DeviceChoice::Cuda(2));
        assert_eq!(list("cuda:2+cuda:1,cuda:0+cuda:3").one_copy(), divided);
        assert_eq!(list("candle-cpu+candle-cpu").in_one_memory(), 2);
        let error = "cuda:0,cuda:1+cuda:2".parse::<DeviceList>().expect_err("not alike");
        assert_eq!(
            error.to_string(),
            "`cuda:0,cuda:1+cuda:2` divides one copy of the model over 1 and another over 2 devices"
        );
    }

    #[test]
    fn what_is_no_list_of_devices_is_refused() {
        let told = |text: &str| {
            let error = text.parse::<DeviceList>().expect_err("no list");
            (error.to_string(), error.help().map(|hint| hint.to_string()).unwrap_or_default())
        };
        for (text, name) in [("", ""), ("cpu,gpu", "gpu"), ("cuda:0+cuda:x", "cuda:x")] {
            assert_eq!(told(text).0, format!("unknown device `{name}`"), "{text}");
        }
        let missing = [
            ("cuda:0,", "after `,`"),
            ("cuda:0+", "after `+`"),
            ("cuda:0 + ", "after `+`"),
            ("cuda:0+,cuda:1", "after `+`"),
            ("+cuda:0", "before `+`"),
            (",", "before `,`"),
        ];
        for (text, place) in missing {
            let (error, hint) = told(text);
            assert_eq!(error, format!("`{text}` has no device {place}"));
            assert!(hint.contains("cuda:0+cuda:1 divides its layers"), "{hint}");
        }
        for text in ["cuda:all,cuda:0", "cuda:all+cuda:1", "cuda:0,cuda:all"] {
            let (error, hint) = told(text);
            assert_eq!(error, format!("cuda:all cannot be combined with other devices: `{text}`"));
            assert!(hint.contains("to copy the model to every CUDA device") && hint.contains("--device cuda:0+cuda:1"));
        }
        let (error, hint) = told(&vec!["candle-cpu"; 17].join(","));
        assert_eq!(error, "17 devices exceed the limit of 8");
        assert!(hint.starts_with("list at most 8 devices"), "{hint}");
        let (_, hint) = told("candle-cpu,candle-cpu+candle-cpu");
        assert!(hint.starts_with("use the same number of devices for each copy: --device cuda:0+cuda:1,"), "{hint}");
    }

    #[test]
    fn devices_that_cannot_share_work_are_refused_with_what_to_do() {
        list("candle-cpu,candle-cpu,candle-cpu").check().expect("copies on one processor, for tests");
        let (error, hint) = refused("cpu,cpu");
        assert_eq!(error, "cpu is listed twice");
        assert!(hint.starts_with("use --device cpu once; it uses all processors"), "{hint}");
        let (error, hint) = refused("cuda:1,cuda:0,cuda:1");
        assert_eq!(
            (error.as_str(), hint.as_str()),
            ("cuda:1 is listed twice", "list each device once; cuda:all is every CUDA device")
        );
        assert_eq!(refused("metal,metal").1, "use --device metal");
        list("candle-cpu+candle-cpu").check().expect("stages on one processor, for tests");
        assert_eq!(refused("cuda:0+cuda:1,cuda:2+cuda:1").0, "cuda:1 is listed twice");
        for mixed in ["cpu,candle-cpu", "cuda:0,metal", "cuda:0+cpu"] {
            assert_eq!(refused(mixed).0, format!("`{mixed}` mixes kinds of devices"));
        }
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_build_without_cuda_says_how_to_get_it() {
        for (text, named) in [(ALL_CUDA, ALL_CUDA), ("cuda:0,cuda:1", "cuda:0")] {
            assert_eq!(list(text).counted().to_string(), text);
            let (error, hint) = refused(text);
            assert_eq!(error, format!("this build cannot compute on {named}"), "{text}");
            assert!(hint.starts_with("cargo install --locked --path . --features cuda, "), "{hint}");
        }
    }
}
