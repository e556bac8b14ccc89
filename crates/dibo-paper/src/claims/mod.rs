//! The paper's claims: one short function each, from the numbers of a results folder alone.
mod authors;
mod bounds;
mod cleaning;
mod double_loop;
mod learning;
mod outside;
mod reviews;
mod rings;
mod sensitivity;
mod simple;
mod theory;
mod variants;

pub use bounds::BOUNDS;
pub use dibo_report::judge::terminal;
use dibo_report::judge::{self, Judge};
use dibo_report::report::Extra;
use dibo_report::report::claims::Claim;
use dibo_report::results::{Curves, Manifest};

/// For claims about divergence.
const DIVERGED: &[&str] = &["diverged"];

/// Id, statement and judge of each claim.
pub const JUDGES: &[Judge] = &[
    Judge::new(
        "TABLE",
        "The sensitivity table: the outcome of each of its 21 rows, and iteration counts within an rms log \
        error of 0.2",
        sensitivity::table,
    )
    .counting(DIVERGED)
    .with_table(sensitivity::extra),
    Judge::new(
        "P1",
        "FAB is stable for λ in [60, 140]; iterations to 1 % grow about linearly in λ",
        sensitivity::p1,
    ),
    Judge::new("P2", "A too small λ fails to recover the solution", sensitivity::p2).counting(DIVERGED),
    Judge::new("P3", "ηy ≠ ηz: slow or divergent", sensitivity::p3).counting(DIVERGED),
    Judge::new("P4", "ηy = ηz scaled together: robust", sensitivity::p4),
    Judge::new("P5", "A larger ηx is faster", sensitivity::p5),
    Judge::new("P6", "FAB ends lower than every double-loop baseline", double_loop::p6),
    Judge::new("P7", "FAB starts slower and ends lower than the double-loop baselines", double_loop::p7),
    Judge::new("P8", "DL-Push-SGD drops sharply, then stagnates", double_loop::p8),
    Judge::new("P9", "FAB is more sensitive to noise than the double-loop baselines", double_loop::p9),
    Judge::new("P10", "A larger ν converges faster", double_loop::p10),
    Judge::new("P11", "A larger ν costs more bytes an iteration", double_loop::p11),
    Judge::new("P12", "Push-SAGA and Push-SGD coincide on full batches", double_loop::p12),
    Judge::new("P13", "With many agents FAB is ahead in iterations and in time", double_loop::p13),
    Judge::new(
        "P14",
        "Among the baselines AB/Push-Pull is the more time-efficient as n grows",
        double_loop::p14,
    ),
    Judge::new("P15", "Larger n and ω make all methods worse", double_loop::p15),
    Judge::new("P16", "Convergence degrades with n on rings, but not exponentially", rings::p16)
        .counting(DIVERGED),
    Judge::new("P17", "Smaller weights a, b are slower", rings::p17).counting(DIVERGED),
    Judge::new("P18", "Static_FAB diverges", variants::p18).counting(DIVERGED),
    Judge::new("P19", "FAB is best in time and memory against PushSum_FAB and PushPull_SOBA", variants::p19),
    Judge::new("P20", "Centralized_FAB bounds the others", variants::p20),
    Judge::new("P21", "FAB bears a step of 0.15, PushSum_FAB only about 0.001", variants::p21)
        .counting(DIVERGED),
    Judge::new(
        "H1",
        "FAB's test accuracy is above every baseline at τ = 0.2, for each corruption rate",
        learning::h1,
    ),
    Judge::new(
        "H2",
        "FAB's test accuracy is above every baseline at τ = 0.15, for each corruption rate",
        learning::h2,
    ),
    Judge::new("H3", "FAB's τ settles near 0.15", learning::h3),
    Judge::new("H4", "The baselines at τ = 0.15 are a little better than at τ = 0.2", learning::h4),
    Judge::new("C1", "FAB is above all baselines at each corruption rate", learning::ahead),
    Judge::new("C2", "FAB is above all baselines in time as well", cleaning::c2),
    Judge::new("C3", "The baselines degrade strongly as cr grows", learning::c3),
    Judge::new("C4", "All degrade as ρ falls, FAB the least", cleaning::c4),
    Judge::new("C5", "ρ hardly changes peak memory", cleaning::c5),
    Judge::new("C6", "ν hardly changes the peak accuracy", cleaning::c6),
    Judge::new("C7", "A denser network is steadier and costs more", cleaning::c7),
    Judge::new("C8", "FAB communicates most", cleaning::c8),
    Judge::new("C9", "FAB's lead grows with cr", learning::c9),
    Judge::new("C10", "Communication, memory and time grow linearly with the model", cleaning::c10),
    Judge::new("C11", "FAB costs about twice AB/Push-Pull in bytes", learning::c11),
    Judge::new("C12", "The sample weights separate clean from corrupted samples", learning::c12),
    Judge::new("B1", "On IMDB FAB is more accurate in every setting of cr, ν and ρ", reviews::b1),
    Judge::new("B2", "With unlike labels the accuracy starts near 0 % and oscillates", reviews::b2),
    Judge::new(
        "B3",
        "The baselines are a little faster at cr = 0.1 and 0.2; FAB overtakes as cr grows",
        reviews::b3,
    ),
    Judge::new("W1", "FAB's weights end above every simple way of the same setting", simple::w1),
    Judge::new(
        "W2",
        "Cleaning by FAB's weights tells wrong labels from right ones better than every simple way",
        simple::w2,
    ),
    Judge::new("BENCH", "benchmark_bilevel's published test errors of MNIST cleaning", outside::bench),
    Judge::new("BOME", "BOME's published accuracies of linear baselines at 50 % noise", outside::bome),
    Judge::new(
        "S1",
        "SPARKLE's authors: ED and EXTRA end nearer the solution than gradient tracking and D-SOBA",
        authors::s1,
    ),
    Judge::new(
        "S2",
        "SPARKLE's authors: mixed strategies (ED for y and z, gradient tracking for x) gain over gradient \
        tracking alone",
        authors::s2,
    ),
    Judge::new(
        "S3",
        "SPARKLE's authors: on policy evaluation ED and EXTRA end lower than MDBO and SLDBO",
        authors::s3,
    ),
    Judge::new(
        "S4",
        "SPARKLE's authors: on cleaning ED and EXTRA are more accurate than D-SOBA, MA-DSBO and MDBO for \
        the same gradients",
        authors::s4,
    ),
    Judge::new("S5", "SPARKLE's authors: on cleaning mixed strategies are as accurate as ED", authors::s5),
    Judge::new(
        "D1",
        "D-SOBA's authors: a better connected network and more alike agents help it",
        authors::d1,
    ),
    Judge::new(
        "D2",
        "D-SOBA's authors: without inner loops it ends nearer the solution than MA-DSBO for the same \
        gradients",
        authors::d2,
    ),
    Judge::new(
        "D3",
        "D-SOBA's authors: on cleaning it is more accurate than MA-DSBO and MDBO for the same gradients",
        authors::d3,
    ),
    Judge::new("T1", "min ‖∇F*‖² falls at least as fast as K^−2/3", theory::t1),
    Judge::new("T2", "The mean consensus error falls at least as fast as K^−1", theory::t2),
    Judge::new(
        "T3",
        "AB/Push-Pull on a nonconvex objective: mean ‖∇F‖² and mean consensus error fall at least as fast \
        as K^−1",
        theory::t3,
    ),
    Judge::new("T4", "The fixed point's hypergradient is biased by O(1/λ)", theory::t4),
    Judge::new("T5", "Σt = Σd at every step", theory::t5).counting(&["broken"]),
    Judge::new(
        "G1",
        "A growing penalty ends nearer the solution than the best fixed one of the same length",
        theory::g1,
    ),
    Judge::new(
        "G2",
        "A growing penalty ends with a higher test accuracy than the best fixed one",
        theory::g2,
    ),
];

/// Judges the paper's claims that an experiment asks for.
pub fn judge(manifest: &Manifest, curves: &Curves) -> Vec<Claim> {
    judge::judge(JUDGES, manifest, curves)
}

/// The tables that go with them.
pub fn extras(manifest: &Manifest, curves: &Curves) -> Vec<Extra> {
    judge::extras(JUDGES, manifest, curves)
}

#[cfg(test)]
mod tests;
