//! What a process of this machine has used, as the kernel tells.

/// Clock ticks of a second in `/proc`; a constant of the kernel's interface.
const TICKS: f64 = 100.0;

/// CPU time so far, in seconds.
pub fn cpu_secs(pid: u32) -> Option<f64> {
    cpu_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Memory in use now, in MiB.
pub fn rss_mib(pid: u32) -> Option<f64> {
    rss_of(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn cpu_of(stat: &str) -> Option<f64> {
    // The name may hold spaces; what follows its bracket does not.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn rss_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(cpu_of(stat), Some(2.0));
        assert_eq!(rss_of("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2.0));
        assert!(rss_mib(std::process::id()).is_some_and(|mib| mib > 0.1));
        assert!(cpu_secs(std::process::id()).is_some());
    }
}
