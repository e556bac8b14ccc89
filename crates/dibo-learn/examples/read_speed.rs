//! How fast a table is read and how much memory that takes: `cargo run --release --example read_speed`, or
//! with a file of one's own: `read_speed FILE LABEL [ID]`.
use dibo_learn::{Roles, read};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROWS: usize = 200_000;
const COLUMNS: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1);
    let (file, label, id) = match given.next() {
        Some(file) => (PathBuf::from(file), given.next(), given.next()),
        None => {
            let file = std::env::temp_dir().join(format!("read_speed_{}.csv", std::process::id()));
            write(&file)?;
            (file, Some("label".into()), Some("id".into()))
        }
    };
    let roles = Roles { label, id, ..Roles::default() };
    let start = Instant::now();
    let samples = read(&file, &roles)?;
    let seconds = start.elapsed().as_secs_f64();
    let size = std::fs::metadata(&file)?.len() as f64 / 1e6;
    println!("{} rows of {} features, {size:.1} MB", samples.rows, samples.features.len());
    println!("{seconds:.3} s, {:.0} rows/s, {:.0} MB/s", samples.rows as f64 / seconds, size / seconds);
    if let Some(peak) = peak() {
        println!("peak {peak:.1} MB, {:.2} times the file", peak / size);
    }
    if std::env::args().len() == 1 {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// Numbers as tables have them: six digits, some negative, some missing.
fn write(file: &Path) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
    write!(out, "id,label")?;
    (0..COLUMNS).try_for_each(|c| write!(out, ",x{c}"))?;
    let mut state = 1u64;
    for row in 0..ROWS {
        write!(out, "\nrow-{row},{}", ["cat", "dog", "bird"][row % 3])?;
        for _ in 0..COLUMNS {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = (state >> 40) as f64 / f64::from(1u32 << 23) - 1.0;
            if state >> 57 == 0 { write!(out, ",")? } else { write!(out, ",{value:.6}")? }
        }
    }
    out.flush()
}

/// The most memory that this process ever had, in megabytes; Linux says.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0 / 1e6)
}
