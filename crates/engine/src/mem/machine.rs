//! How much memory may this process have? What its cgroup, or else the machine, gives.

use std::fs;
use std::path::{Path, PathBuf};

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
