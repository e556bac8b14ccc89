//! Judges the paper's claims from a run: one short function per claim, from the numbers of the run alone.
mod cleaning;
mod data;
mod double_loop;
mod learning;
mod outside;
mod rings;
mod sensitivity;
mod theory;
mod variants;

use crate::report::Extra;
use crate::report::claims::{Claim, Verdict};
use crate::results::{Curves, Manifest};
use data::Run;

/// What a run says about a claim: verdict, number and how to read it; or why it cannot tell.
type Judged = Result<(Verdict, String, String), String>;

/// A judge.
type Judge = fn(&Run<'_>) -> Judged;

/// Id, statement and judge of each claim.
const CLAIMS: &[(&str, &str, Judge)] = &[
    (
        "TABLE",
        "The sensitivity table: the outcome of each of its 21 rows, and iteration counts within an rms log \
        error of 0.2",
        sensitivity::table,
    ),
    ("P1", "FAB is stable for λ in [60, 140]; iterations to 1 % grow about linearly in λ", sensitivity::p1),
    ("P2", "A too small λ fails to recover the solution", sensitivity::p2),
    ("P3", "ηy ≠ ηz: slow or divergent", sensitivity::p3),
    ("P4", "ηy = ηz scaled together: robust", sensitivity::p4),
    ("P5", "A larger ηx is faster", sensitivity::p5),
    ("P6", "FAB ends lower than every double-loop baseline", double_loop::p6),
    ("P7", "FAB starts slower and ends lower than the double-loop baselines", double_loop::p7),
    ("P8", "DL-Push-SGD drops sharply, then stagnates", double_loop::p8),
    ("P9", "FAB is more sensitive to noise than the double-loop baselines", double_loop::p9),
    ("P10", "A larger ν converges faster", double_loop::p10),
    ("P11", "A larger ν costs more bytes an iteration", double_loop::p11),
    ("P12", "Push-SAGA and Push-SGD coincide on full batches", double_loop::p12),
    ("P13", "With many agents FAB is ahead in iterations and in time", double_loop::p13),
    ("P14", "Among the baselines AB/Push-Pull is the more time-efficient as n grows", double_loop::p14),
    ("P15", "Larger n and ω make all methods worse", double_loop::p15),
    ("P16", "Convergence degrades with n on rings, but not exponentially", rings::p16),
    ("P17", "Smaller weights a, b are slower", rings::p17),
    ("P18", "Static_FAB diverges", variants::p18),
    ("P19", "FAB is best in time and memory against PushSum_FAB and PushPull_SOBA", variants::p19),
    ("P20", "Centralized_FAB bounds the others", variants::p20),
    ("P21", "FAB bears a step of 0.15, PushSum_FAB only about 0.001", variants::p21),
    ("H1", "FAB's test accuracy is above every baseline at τ = 0.2, for each corruption rate", learning::h1),
    ("H2", "FAB's test accuracy is above every baseline at τ = 0.15, for each corruption rate", learning::h2),
    ("H3", "FAB's τ settles near 0.15", learning::h3),
    ("H4", "The baselines at τ = 0.15 are a little better than at τ = 0.2", learning::h4),
    ("C1", "FAB is above all baselines at each corruption rate", learning::ahead),
    ("C2", "FAB is above all baselines in time as well", cleaning::c2),
    ("C3", "The baselines degrade strongly as cr grows", learning::c3),
    ("C4", "All degrade as ρ falls, FAB the least", cleaning::c4),
    ("C5", "ρ hardly changes memory", cleaning::c5),
    ("C6", "ν hardly changes the peak accuracy", cleaning::c6),
    ("C7", "A denser network is steadier and costs more", cleaning::c7),
    ("C8", "FAB communicates most", cleaning::c8),
    ("C9", "FAB's lead grows with cr", learning::c9),
    ("C10", "Communication, memory and time grow linearly with the model", cleaning::c10),
    ("C11", "FAB costs about twice AB/Push-Pull in bytes", learning::c11),
    ("C12", "The sample weights separate clean from corrupted samples", learning::c12),
    ("BENCH", "benchmark_bilevel's published test errors of MNIST cleaning", outside::bench),
    ("BOME", "BOME's published accuracies of linear baselines at 50 % noise", outside::bome),
    ("T1", "min ‖∇F*‖² falls at least as fast as K^−2/3", theory::t1),
    ("T2", "The mean consensus error falls at least as fast as K^−1", theory::t2),
    (
        "T3",
        "AB/Push-Pull on a nonconvex objective: mean ‖∇F‖² and mean consensus error fall at least as fast \
        as K^−1",
        theory::t3,
    ),
    ("T4", "The fixed point's hypergradient is biased by O(1/λ)", theory::t4),
    ("T5", "Σt = Σd at every step", theory::t5),
    (
        "G1",
        "A growing penalty ends nearer the solution than the best fixed one of the same length",
        theory::g1,
    ),
    ("G2", "A growing penalty ends with a higher test accuracy than the best fixed one", theory::g2),
];

/// Judges the claims that an experiment asks for.
pub fn judge(manifest: &Manifest, curves: &Curves) -> Vec<Claim> {
    let run = Run { manifest, curves };
    let judge_one = |id: &String| {
        let found = CLAIMS.iter().find(|claim| claim.0 == id);
        let judged =
            found.map_or_else(|| Err("dibo has no judge for this claim".into()), |claim| claim.2(&run));
        let (verdict, number, mut reading) =
            judged.unwrap_or_else(|why| (Verdict::NotMeasured, String::new(), why));
        if !manifest.overrides.is_empty() {
            reading += &format!("; this run was changed by --set {}", manifest.overrides.join(" --set "));
        }
        Claim {
            id: id.clone(),
            statement: found.map_or_else(String::new, |claim| claim.1.into()),
            verdict,
            number,
            reading,
        }
    };
    manifest.claims.iter().map(judge_one).collect()
}

/// Tables that belong to a report beside its claims.
pub fn extras(manifest: &Manifest, curves: &Curves) -> Vec<Extra> {
    let wanted = manifest.claims.iter().any(|id| id == "TABLE");
    let run = Run { manifest, curves };
    if wanted { sensitivity::extra(&run).into_iter().collect() } else { Vec::new() }
}

/// The claims as lines for the terminal.
pub fn terminal(claims: &[Claim]) -> String {
    let word = |v: &Verdict| match v {
        Verdict::Holds => "holds".to_string(),
        Verdict::DoesNotHold => "does not hold".to_string(),
        Verdict::HoldsOnlyUnder(what) => format!("holds only under {what}"),
        Verdict::NotMeasured => "not measured".to_string(),
    };
    let line = |c: &Claim| {
        let number = if c.number.is_empty() { &c.reading } else { &c.number };
        wrapped(&format!("{:<5} {}: {} ({number})", c.id, c.statement, word(&c.verdict)))
    };
    claims.iter().map(line).collect()
}

/// Lines of at most 120 characters, indented from the second on.
fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_inclusive(' ') {
        let length = word.chars().count();
        if width + length > 120 {
            out.truncate(out.trim_end().len());
            out += "\n      ";
            width = 6;
        }
        out += word;
        width += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests;
