//! The rules of the house that a machine can check: who uses whom, where `unsafe` may stand, what libraries do not do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up (DESIGN section 2); a crate depends only on lower ones.
const CRATES: [&[&str]; 7] =
    [&["engine"], &["columnar"], &["sql"], &["db"], &["market", "sim"], &["bench"], &["server"]];

/// Where cargo runs this test, not where it was built: build output is shared between clones.
fn crates_dir() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().expect("a crate lies in crates/").to_path_buf()
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn sources_of(krate: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    sources(&krate.join("src"), &mut paths);
    paths.sort();
    paths
}

fn is_test(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs")
}

/// Lines of code with their numbers: without comments, and without the test modules at a file's end.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).expect("a source file");
    let mut lines = Vec::new();
    let (mut after_cfg_test, mut after_cfg_of_tests) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let is_module = line.trim_start().starts_with("mod ") && line.ends_with('{');
        if after_cfg_test && is_module || after_cfg_of_tests && line == "mod tests {" {
            break;
        }
        after_cfg_test = line.trim() == "#[cfg(test)]";
        after_cfg_of_tests = line.starts_with("#[cfg(all(test, ");
        let line = line.split("//").next().unwrap_or_default();
        lines.push((number + 1, line.to_string()));
    }
    lines
}

/// Whether the line has the word, not as a part of another.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_part)
            && !line[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

fn all_crates() -> Vec<PathBuf> {
    let mut crates: Vec<PathBuf> = fs::read_dir(crates_dir())
        .expect("the crates")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.join("Cargo.toml").exists())
        .collect();
    crates.sort();
    assert!(crates.len() >= 4, "{crates:?}");
    crates
}

#[test]
fn modules_use_only_what_stands_above_them() {
    let root = crates_dir().join("engine/src");
    let mut order = BTreeMap::new();
    for (_, line) in code(&root.join("lib.rs")) {
        let name = line.trim().trim_start_matches("pub ").strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
        if let Some(name) = name {
            order.insert(name.to_string(), order.len());
        }
    }
    assert!(order.len() >= 13, "{order:?}");
    let mut wrong = Vec::new();
    for path in sources_of(&crates_dir().join("engine")).iter().filter(|p| !is_test(p)) {
        let inside = path.strip_prefix(&root).expect("below the root");
        let first = inside.components().next().expect("a file").as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        let Some(&own) = order.get(module) else { continue };
        for (number, line) in code(path) {
            for (at, _) in line.match_indices("crate::") {
                let used: String = line[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if order.get(&used).is_some_and(|&used| used > own) {
                    wrong.push(format!("{}:{number} uses {used}", inside.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn crates_depend_one_way() {
    let level = |name: &str| CRATES.iter().position(|names| names.contains(&name));
    let mut edges = 0;
    for krate in all_crates() {
        let name = krate.file_name().expect("a name").to_string_lossy().into_owned();
        let own = level(&name).unwrap_or_else(|| panic!("crate {name} has no level yet"));
        let manifest = fs::read_to_string(krate.join("Cargo.toml")).expect("a manifest");
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let Some(used) = line.strip_prefix("freshet-").filter(|_| section.contains("dependencies")) else {
                continue;
            };
            let used = used.split(['.', ' ', '=']).next().unwrap_or_default();
            let lower = level(used).unwrap_or_else(|| panic!("crate {used} has no level yet"));
            assert!(lower < own, "{name} depends on {used}");
            edges += 1;
        }
    }
    assert!(edges >= 4, "{edges} dependencies between crates");
}

#[test]
fn unsafe_stands_only_where_its_invariants_do() {
    let allowed = ["mem", "index", "log", "io"].map(|m| crates_dir().join("engine/src").join(m));
    for path in all_crates().iter().flat_map(|c| sources_of(c)) {
        if allowed.iter().any(|a| path.starts_with(a) || path == a.with_extension("rs")) {
            continue;
        }
        let found = code(&path).into_iter().find(|(_, line)| has_word(line, "unsafe"));
        assert!(found.is_none(), "{}: {found:?}", path.display());
    }
}

#[test]
fn libraries_neither_print_nor_unwrap_nor_leave_work() {
    let prints = ["println", "print", "eprintln", "eprint", "dbg"];
    let mut wrong = Vec::new();
    for path in all_crates().iter().flat_map(|c| sources_of(c)).filter(|p| !is_test(p)) {
        let is_program = path.ends_with("main.rs") || path.components().any(|c| c.as_os_str() == "bin");
        for (number, line) in code(&path) {
            let prints = !is_program && prints.iter().any(|p| has_word(&line, p) && line.contains(&format!("{p}!")));
            let unfinished = line.contains("todo!(") || line.contains("unimplemented!(") || line.contains("#[ignore");
            if line.contains(".unwrap()") || prints || unfinished {
                wrong.push(format!("{}:{number} {}", path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
