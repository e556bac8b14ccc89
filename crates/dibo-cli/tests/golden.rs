//! The ends of short runs of every algorithm, as an earlier version gave them: a change of the code must not
//! change a bit of them, on 1, 2 or 3 threads, at any width of registers that this machine has.
//!
//! `DIBO_GOLDEN=write cargo test --release -p dibo-cli --test golden` writes them anew (with
//! `DIBO_GOLDEN_BINARY=PATH`, those of another dibo): only where numbers are meant to change.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The last row of every run: all but the seconds.
fn ends(program: &str, experiment: &Path, cpu: &str, threads: &str) -> Vec<String> {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .env("DIBO_CPU", cpu)
        .arg("run")
        .arg(experiment)
        .args(["--quiet", "--threads", threads, "--out"])
        .arg(out.path().join("out"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let csv = std::fs::read_to_string(out.path().join("out/curves.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    let last = |i: usize| rows.get(i + 1).is_none_or(|next| next[..2] != rows[i][..2]);
    let kept = (0..rows.len()).filter(|i| *i == 0 || last(*i));
    kept.map(|i| {
        let all = rows[i].iter().enumerate().filter(|(c, _)| *c != 3).map(|(_, v)| *v);
        all.collect::<Vec<_>>().join(",")
    })
    .collect()
}

#[test]
fn ends_are_those_of_earlier_versions() {
    let write = std::env::var("DIBO_GOLDEN").is_ok_and(|v| v == "write");
    let other = std::env::var("DIBO_GOLDEN_BINARY").ok();
    let program = other.as_deref().unwrap_or(env!("CARGO_BIN_EXE_dibo"));
    let has = |level: &str| match level {
        #[cfg(target_arch = "x86_64")]
        "avx512" => is_x86_feature_detected!("avx512f"),
        #[cfg(target_arch = "x86_64")]
        "avx2" => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
        _ => level == "baseline",
    };
    let names = [
        "policy",
        "quadratic",
        "robust",
        "cleaning",
        "tuning",
        "lossy",
        "many",
        "wide",
        "cells",
        "cells-cleaning",
    ];
    let levels: Vec<&str> = ["baseline", "avx2", "avx512"].into_iter().filter(|l| has(l)).collect();
    let all: Vec<(&str, &str)> = levels.iter().flat_map(|cpu| names.map(|name| (*cpu, name))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((cpu, name)) = all.get(next.fetch_add(1, Relaxed)) {
                    let kept = folder().join(format!("{name}.{cpu}.csv"));
                    for threads in ["1", "2", "3"] {
                        let file = folder().join(format!("{name}.toml"));
                        let now = ends(program, &file, cpu, threads).join("\n") + "\n";
                        if write && threads == "1" {
                            std::fs::write(&kept, &now).unwrap();
                        }
                        let then = std::fs::read_to_string(&kept).unwrap();
                        assert_eq!(now, then, "{name} on {threads} threads with {cpu}");
                    }
                }
            });
        }
    });
}
