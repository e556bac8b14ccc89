//! P1 to P5 and the sensitivity table.
use super::bounds::*;
use dibo_report::judge::{Class, Judged, Margin, Run, list};
use dibo_report::report::words::number;
use dibo_report::report::{Body, Extra};

/// A row as printed: λ, ηx, ηy, ηz, iterations to 1 % (0 for more than 20,000), relative error at the end.
pub(super) type Row = (f64, f64, f64, f64, f64, f64);

pub(super) const TABLE: [Row; 21] = [
    (60.0, 0.10, 0.10, 0.10, 3200.0, 9.82e-3),
    (80.0, 0.10, 0.10, 0.10, 4060.0, 9.51e-3),
    (100.0, 0.10, 0.10, 0.10, 4860.0, 9.76e-3),
    (120.0, 0.10, 0.10, 0.10, 5740.0, 9.98e-3),
    (140.0, 0.10, 0.10, 0.10, 6620.0, 9.97e-3),
    (60.0, 0.06, 0.10, 0.10, 5080.0, 9.91e-3),
    (60.0, 0.08, 0.10, 0.10, 4060.0, 9.36e-3),
    (60.0, 0.12, 0.10, 0.10, 2800.0, 8.09e-3),
    (60.0, 0.14, 0.10, 0.10, 2440.0, 9.73e-3),
    (60.0, 0.10, 0.06, 0.10, 0.0, 1.24e-1),
    (60.0, 0.10, 0.08, 0.10, 10760.0, 7.66e-3),
    (60.0, 0.10, 0.12, 0.10, 0.0, 1.33e3),
    (60.0, 0.10, 0.14, 0.10, 0.0, 1.81e3),
    (60.0, 0.10, 0.10, 0.06, 0.0, 1.80e3),
    (60.0, 0.10, 0.10, 0.08, 0.0, 1.32e3),
    (60.0, 0.10, 0.10, 0.12, 9020.0, 8.11e-3),
    (60.0, 0.10, 0.10, 0.14, 14920.0, 8.92e-3),
    (60.0, 0.10, 0.06, 0.06, 3280.0, 9.91e-3),
    (60.0, 0.10, 0.08, 0.08, 3240.0, 9.88e-3),
    (60.0, 0.10, 0.12, 0.12, 3600.0, 8.19e-3),
    (60.0, 0.10, 0.14, 0.14, 4060.0, 9.19e-3),
];

fn printed(row: &Row) -> Class {
    match row {
        row if row.4 > 0.0 => Class::Converges,
        row if row.5 > 1.0 => Class::Diverges,
        _ => Class::NotReached,
    }
}

/// λ, ηx, ηy and ηz of a FAB series.
fn settings(run: &Run<'_>, series: usize) -> Option<[f64; 4]> {
    let get = |key: &str| run.number(series, &format!("algorithm.{key}"));
    let y = get("eta_y")?;
    Some([get("lambda")?, get("eta_x")?, y, get("eta_z").unwrap_or(y)])
}

/// FAB's series with their settings, where these satisfy a condition.
fn rows(run: &Run<'_>, wanted: impl Fn([f64; 4]) -> bool) -> Vec<(usize, [f64; 4])> {
    run.of("fab")
        .into_iter()
        .filter_map(|i| Some((i, settings(run, i)?)))
        .filter(|(_, s)| wanted(*s))
        .collect()
}

fn ours(run: &Run<'_>, row: &Row) -> Option<usize> {
    rows(run, |s| s == [row.0, row.1, row.2, row.3]).first().map(|found| found.0)
}

fn full_length(run: &Run<'_>) -> Result<(), String> {
    let short = run.series(|i| {
        run.number(i, "run.iterations") != Some(20_000.0) || run.number(i, "run.target") != Some(0.01)
    });
    if short.is_empty() {
        Ok(())
    } else {
        Err("the table needs 20,000 iterations and the target 0.01".into())
    }
}

pub fn table(run: &Run<'_>) -> Judged {
    full_length(run)?;
    let found: Vec<(&Row, usize)> = TABLE.iter().filter_map(|row| Some((row, ours(run, row)?))).collect();
    if found.len() < TABLE.len() {
        return Err(format!("only {} of the 21 rows were run", found.len()));
    }
    let same = found.iter().filter(|(row, i)| printed(row) == run.class(*i)).count();
    let both =
        found.iter().filter(|(row, i)| printed(row) == Class::Converges && run.class(*i) == Class::Converges);
    let logs: Vec<f64> = both.map(|(row, i)| (run.to_target(*i) / row.4).ln()).collect();
    let rms = (logs.iter().map(|l| l * l).sum::<f64>() / logs.len() as f64).sqrt();
    let number =
        format!("{same} of 21 outcomes; rms log error of the iterations {rms:.3} over {} rows", logs.len());
    let reading = "a row's outcome is that of most seeds, its iterations the mean over the seeds that \
        reach the target; the paper's table is one instance, which is not given";
    let margins = vec![Margin::fact("outcomes", same == 21), Margin::new("iterations", TABLE_RMS - rms)];
    Ok((margins, number, reading.into()))
}

/// The 21 rows, the paper's numbers beside ours.
pub fn extra(run: &Run<'_>) -> Option<Extra> {
    let mut lines = vec![
        "λ, ηx, ηy, ηz|paper: outcome|iterations|error|here: outcome|iterations, mean [min, max]|ratio"
            .to_string(),
    ];
    for row in &TABLE {
        let i = ours(run, row)?;
        let counts = run.runs(i).map(|r| r.iterations);
        let span = format!("{:.0} [{}, {}]", run.iterations(i), counts.clone().min()?, counts.max()?);
        let both = row.4 > 0.0 && run.class(i) == Class::Converges;
        let ratio = if both { format!("{:.2}", run.to_target(i) / row.4) } else { "–".into() };
        let theirs = if row.4 > 0.0 { format!("{}", row.4) } else { "> 20000".into() };
        let (steps, error) = (format!("{}, {}, {}, {}", row.0, row.1, row.2, row.3), number(row.5));
        lines.push(format!(
            "{steps}|{}|{theirs}|{error}|{}|{span}|{ratio}",
            printed(row).word(),
            run.class(i).word()
        ));
    }
    let table = lines.iter().map(|line| line.split('|').map(String::from).collect()).collect();
    Some(Extra::new("The table of the paper, row by row", Body::Table(table)))
}

const BASE: [f64; 4] = [60.0, 0.1, 0.1, 0.1];

fn base(run: &Run<'_>) -> Result<f64, String> {
    let found = rows(run, |s| s == BASE);
    let (i, _) = found.first().ok_or("the row λ = 60 with steps 0.1 is missing")?;
    if run.class(*i) == Class::Converges {
        Ok(run.to_target(*i))
    } else {
        Err("the row λ = 60 with steps 0.1 did not converge".into())
    }
}

pub fn p1(run: &Run<'_>) -> Judged {
    full_length(run)?;
    let rows = rows(run, |s| s[0] >= 60.0 && s[1..] == BASE[1..]);
    if rows.len() < 3 {
        return Err("fewer than three penalties from 60 on were run".into());
    }
    let per: Vec<f64> = rows.iter().map(|(i, s)| run.iterations(*i) / s[0]).collect();
    let (low, high) =
        (per.iter().copied().fold(f64::INFINITY, f64::min), per.iter().copied().fold(0.0, f64::max));
    let stable = rows.iter().all(|(i, _)| run.all_reached(*i));
    let margin = Margin::new("", (LINEAR_SPREAD * low / high).ln()).only_if(stable);
    let reading = "iterations to 1 % divided by λ; linear where this is constant (the paper's own numbers: \
        47.3 to 53.3)";
    Ok((vec![margin], format!("T/λ between {low:.1} and {high:.1}"), reading.into()))
}

pub fn p2(run: &Run<'_>) -> Judged {
    full_length(run)?;
    base(run)?;
    // x moves by ηx/λ of the hypergradient: in proportion, so that only the penalty's own bias is left.
    let same_pace = |s: [f64; 4]| (s[1] / s[0] * 600.0 - 1.0).abs() < 0.01 && s[2..] == BASE[2..];
    let mut rows = rows(run, |s| s[0] < 30.0 && same_pace(s));
    rows.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    let (smallest, s) = rows.first().ok_or("no penalty below 30 was run with ηx in proportion")?;
    let end = |i: usize| run.mean(i, |r| r.last.get("relative_error").copied().unwrap_or(f64::NAN));
    let margin = Margin::ratio(format!("λ = {}", s[0]), TARGET, end(*smallest));
    let each = rows.iter().map(|(i, s)| {
        let (reached, all) = run.count(*i, "reached");
        format!("λ={}: ends at {}, {reached} of {all} reach 1 %", s[0], number(end(*i)))
    });
    let reading = "relative error at the end with the smallest λ, above 1 %; ηx in proportion to λ, so \
        that x keeps its pace: at ηx = 0.1 itself a small λ diverges, whatever its solution is";
    Ok((vec![margin.only_if(!run.failed(*smallest))], list(each), reading.into()))
}

pub fn p3(run: &Run<'_>) -> Judged {
    full_length(run)?;
    let base = base(run)?;
    let rows = rows(run, |s| s[0] == 60.0 && s[1] == 0.1 && s[2] != s[3]);
    if rows.is_empty() {
        return Err("no row with ηy ≠ ηz was run".into());
    }
    let slow = |i: usize| match run.class(i) {
        Class::Converges => (run.to_target(i) / (SLOWER * base)).ln(),
        _ => f64::INFINITY,
    };
    let least = rows.iter().map(|(i, _)| slow(*i)).fold(f64::INFINITY, f64::min);
    let each = rows.iter().map(|(i, s)| match run.class(*i) {
        Class::Converges => format!("ηy={} ηz={}: {:.1}× slower", s[2], s[3], run.to_target(*i) / base),
        other => format!("ηy={} ηz={}: {}", s[2], s[3], other.word()),
    });
    let reading = "FAB diverges where ηx(1/ηz − 1/ηy)σ_max² > 1, so an ηz a few per cent below ηy suffices; \
        ηz above ηy only slows";
    Ok((vec![Margin::new("", least).unit("in ln")], list(each), reading.into()))
}

pub fn p4(run: &Run<'_>) -> Judged {
    full_length(run)?;
    base(run)?;
    let rows = rows(run, |s| s[0] == 60.0 && s[1] == 0.1 && s[2] == s[3]);
    if rows.len() < 3 {
        return Err("fewer than three rows with ηy = ηz were run".into());
    }
    let counts: Vec<f64> = rows.iter().map(|(i, _)| run.iterations(*i)).collect();
    let (low, high) =
        (counts.iter().copied().fold(f64::INFINITY, f64::min), counts.iter().copied().fold(0.0, f64::max));
    let margin = Margin::ratio("", high, ROBUST * low).only_if(rows.iter().all(|(i, _)| run.all_reached(*i)));
    let reading = "iterations over all rows with ηy = ηz; the paper's own go from 3200 to 4060";
    Ok((vec![margin], format!("{low:.0} to {high:.0} iterations"), reading.into()))
}

pub fn p5(run: &Run<'_>) -> Judged {
    full_length(run)?;
    let mut rows = rows(run, |s| s[0] == 60.0 && s[2] == 0.1 && s[3] == 0.1);
    rows.sort_by(|a, b| a.1[1].total_cmp(&b.1[1]));
    if rows.len() < 3 {
        return Err("fewer than three values of ηx were run".into());
    }
    let gain = |w: &[(usize, [f64; 4])]| (run.iterations(w[0].0) / run.iterations(w[1].0)).ln();
    let least = rows.windows(2).map(gain).fold(f64::INFINITY, f64::min);
    let margin = Margin::new("", least).unit("in ln").only_if(rows.iter().all(|(i, _)| run.all_reached(*i)));
    let product = rows.iter().map(|(i, s)| format!("{:.0}", run.iterations(*i) * s[1]));
    let reading = "T·ηx for growing ηx: constant where the iterations are inversely proportional to ηx";
    Ok((vec![margin], format!("T·ηx = {}", list(product)), reading.into()))
}
