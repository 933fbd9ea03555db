//! How much memory may this process have? What its cgroup, or else the machine, gives.

use super::huge::HugeWords;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The lower of the machine's memory and of the limits of the process's cgroups; `None` where nothing tells.
pub fn available_bytes() -> Option<u64> {
    let machine = machine_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_bytes(Path::new("/sys/fs/cgroup"), &membership);
    machine.into_iter().chain(cgroup).min()
}

/// What this process has resident now; 0 where nothing tells.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field_bytes(&status, "VmRSS:").unwrap_or(0)
}

/// Memory for which huge pages were asked, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HugeUse {
    pub resident_bytes: u64,
    /// Of that, in huge pages.
    pub huge_bytes: u64,
}

/// For each range, and at the end for everything else in this process: what lies where huge pages were asked for. As the kernel tells it in
/// /proc/self/smaps, which takes it a millisecond or so.
pub fn huge_use(ranges: &[Range<usize>]) -> Vec<HugeUse> {
    huge_use_of(&fs::read_to_string("/proc/self/smaps").unwrap_or_default(), ranges)
}

fn huge_use_of(smaps: &str, ranges: &[Range<usize>]) -> Vec<HugeUse> {
    let mut uses = vec![HugeUse::default(); ranges.len() + 1];
    let (mut start, mut mapping) = (0, HugeUse::default());
    for line in smaps.lines() {
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let field = || field_bytes(line, first).unwrap_or(0);
        match first {
            "Rss:" => mapping.resident_bytes = field(),
            "AnonHugePages:" => mapping.huge_bytes = field(),
            // The last line of a mapping; `hg`: huge pages were asked for.
            "VmFlags:" if rest.split_whitespace().any(|flag| flag == "hg") => {
                let at = ranges.iter().position(|range| range.contains(&start)).unwrap_or(ranges.len());
                uses[at].resident_bytes += mapping.resident_bytes;
                uses[at].huge_bytes += mapping.huge_bytes;
            }
            _ => {
                if let Some((from, _)) = first.split_once('-').filter(|_| !first.ends_with(':'))
                    && let Ok(from) = usize::from_str_radix(from, 16)
                {
                    (start, mapping) = (from, HugeUse::default());
                }
            }
        }
    }
    uses
}

/// Whether the machine gives a huge page to who asks for one; `None` where nothing tells.
pub fn gives_huge_pages() -> Option<bool> {
    const WORDS: usize = (4 << 20) / 8;
    fs::metadata("/proc/self/smaps").ok()?;
    let words = HugeWords::zeroed(WORDS).ok()?;
    // Every small page of at least one whole huge one.
    words.iter().step_by(512).for_each(|word| word.store(1, Ordering::Relaxed));
    let range = words.addresses();
    let uses = huge_use(std::slice::from_ref(&range));
    Some(uses[0].huge_bytes > 0)
}

/// `MemTotal` of /proc/meminfo.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    field_bytes(meminfo, "MemTotal:")
}

/// A size of a file of /proc, which counts in KiB.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The lowest limit of this process's cgroup and those above it; version 2, then version 1.
fn cgroup_bytes(root: &Path, membership: &str) -> Option<u64> {
    let read = |file: PathBuf| -> Option<u64> { fs::read_to_string(file).ok()?.trim().parse().ok() };
    let lowest = |root: PathBuf, group: &str, file: &str| {
        let groups = Path::new(group).ancestors().map(|g| root.join(g.strip_prefix("/").unwrap_or(g)));
        groups.filter_map(|g| read(g.join(file))).min()
    };
    let unified = membership.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/");
    // `hierarchy:controllers:path`
    let first_version = membership.lines().find_map(|l| {
        let mut parts = l.splitn(3, ':').skip(1);
        let is_memory = parts.next()?.split(',').any(|c| c == "memory");
        is_memory.then(|| parts.next().unwrap_or("/"))
    });
    let second = lowest(root.to_path_buf(), unified, "memory.max");
    let first = lowest(root.join("memory"), first_version.unwrap_or("/"), "memory.limit_in_bytes");
    second.into_iter().chain(first).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_told_by_range() {
        let mapping = |at: &str, rss, huge, flags| {
            format!(
                "{at} rw-p 00000000 00:00 0 \nSize: 9 kB\nRss: {rss} kB\nAnonHugePages: {huge} kB\nVmFlags: {flags}\n"
            )
        };
        let smaps = mapping("1000-9000", 4096, 2048, "rd wr hg")
            + &mapping("9000-a000", 64, 0, "rd wr hg ")
            + &mapping("f000-f800", 100, 0, "rd wr")
            + &mapping("7f0000000000-7f0000001000", 2048, 2048, "rd hg sd");
        let uses = huge_use_of(&smaps, &[0x1000..0xb000, 0xb000..0xffff]);
        let of = |resident: u64, huge: u64| HugeUse { resident_bytes: resident << 10, huge_bytes: huge << 10 };
        assert_eq!(uses, [of(4160, 2048), of(0, 0), of(2048, 2048)]);
        assert_eq!(huge_use_of("no such file", &[]), [of(0, 0)]);
    }

    #[test]
    fn the_machine_tells_its_memory() {
        assert_eq!(machine_bytes("MemTotal:       16384256 kB\nMemFree: 1 kB\n"), Some(16_384_256 << 10));
        assert_eq!(machine_bytes("nothing"), None);
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = std::env::temp_dir().join(format!("freshet-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().expect("a file has a directory")).expect("a directory");
            fs::write(file, text).expect("a file");
        };
        write("a/memory.max", "1000000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(cgroup_bytes(&root, "0::/a/b\n"), Some(1_000_000));
        assert_eq!(cgroup_bytes(&root, "0::/\n"), None);
        write("memory/c/memory.limit_in_bytes", "500\n");
        write("memory/memory.limit_in_bytes", "700\n");
        assert_eq!(cgroup_bytes(&root, "3:cpu,memory:/c\n"), Some(500));
        assert_eq!(cgroup_bytes(&root, "3:cpu:/c\n"), Some(700));
        fs::remove_dir_all(&root).expect("removed");
    }
}
