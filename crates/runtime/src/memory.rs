//! What memory there is for keys and values.

use probity_models::DeviceChoice;

/// Where nobody says what there is: 4 GiB.
const UNKNOWN: u64 = 4 << 30;

/// Half of the memory that is available now (`MemAvailable` of Linux, which counts file pages that can be dropped); 4
/// GiB where the system does not say, and on a device with memory of its own.
pub(crate) fn default_budget(device: DeviceChoice) -> u64 {
    let text = match device {
        DeviceChoice::Cpu | DeviceChoice::CandleCpu => std::fs::read_to_string("/proc/meminfo").unwrap_or_default(),
        _ => return UNKNOWN,
    };
    available(&text).map_or(UNKNOWN, |bytes| bytes / 2)
}

/// What the machine has; `None` where the system does not say.
pub fn machine_memory() -> Option<u64> {
    line(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn available(meminfo: &str) -> Option<u64> {
    line(meminfo, "MemAvailable:")
}

fn line(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_linux_is_understood_and_nothing_else() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   20480 kB\n"), Some(20 << 20));
        assert_eq!(available("MemAvailable: many kB\n"), None);
        assert_eq!(available(""), None);
    }
}
