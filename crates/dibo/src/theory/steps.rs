//! Which steps are proved to work, and which are known from experiments not to.
//!
//! Steps are here those of the written form ∇f + λ∇g; the normalised form with step η is the written one with
//! η/λ.
use super::graph::MixingConstants;
use super::problem::{Derived, derived};
use crate::mixing::{Mixing, Sequence};
use crate::problem::Constants;

/// One inequality `value ≤ bound`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is bounded, as a reader would write it.
    pub name: &'static str,
    /// The left side.
    pub value: f64,
    /// The right side.
    pub bound: f64,
    /// The step (or penalty) that it allows: the largest η, or the smallest λ.
    pub allows: f64,
}

impl Condition {
    /// By what factor the left side may still grow; below 1 the condition is broken.
    pub fn margin(&self) -> f64 {
        self.bound / self.value
    }
}

/// The condition with the smallest margin.
pub fn binding(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().min_by(|a, b| a.margin().total_cmp(&b.margin()))
}

/// What the proofs know about a network: the constants of appendix D in their own letters.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// Number of agents.
    pub n: f64,
    /// α̲ and ᾱ with α̲/n ≤ \[α_k\]_i ≤ ᾱ/n.
    pub alpha: (f64, f64),
    /// β̲ and β̄.
    pub beta: (f64, f64),
    /// Smallest c_k.
    pub c: f64,
    /// Smallest e_k.
    pub e: f64,
    /// γ.
    pub gamma: f64,
}

impl Net {
    /// From the constants of a sequence.
    pub fn new(agents: usize, m: &MixingConstants) -> Self {
        // The lemmas set δ = c and write (1 + c)(1 − c) as 1 − c. That is right where mixing really takes off
        // 2c/(1 + c), as it nearly always does; elsewhere half of c is safe.
        let safe = |c: f64, measured: f64| if measured >= 2.0 * c / (1.0 + c) { c } else { 0.5 * c };
        let (c, e) = (safe(m.worst.c, m.worst.measured_c), safe(m.worst.e, m.worst.measured_e));
        Net { n: agents as f64, alpha: m.alpha, beta: m.beta, c, e, gamma: m.gamma }
    }
}

/// How the conditions are read. The printed ones do not give the descent that the lemmas state; see
/// DEVIATIONS.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As the paper prints them.
    Printed,
    /// With the slips of the proof mended, so that the lemma's coefficients have the signs that it needs.
    Mended,
}

/// FAB's coefficients 𝒞_{b,1} to 𝒞_{b,3}, 𝒞_aux and q̲.
#[derive(Clone, Copy, Debug)]
pub struct FabConstants {
    /// 𝒞_{b,1}, 𝒞_{b,2}, 𝒞_{b,3}.
    pub c_b: [f64; 3],
    /// 𝒞_aux.
    pub aux: f64,
    /// q̲ = n·min(β)·μ.
    pub q: f64,
    /// The part of λη·q̲ by which y and z are said to come nearer in an iteration.
    pub nearer: f64,
}

/// The constants of Lemma step_size_condition.
///
/// 𝒞_{b,3} is printed as 672γL²/(n·e̲). The consensus coefficient of the proof then is −c̲𝒞_{b,3} + 336γL²/e̲
/// > 0; with c̲ in the place of n it is −½c̲𝒞_{b,3}, and the lemma's ⅕ comes out.
///
/// y's and z's distances are said to fall by the part β̲ of s = ληq̲. For y, whose function is λμ/2-strongly
/// convex, the coefficients of the drift and of S leave 1 + δ₃ = 8/(8 − sb) and (1 + δ₃)(1 + δ₄) = 8/(8 −
/// 5sb): with these 8(1 − s/2)² ≤ (1 − sb)(8 − 5sb) is needed, which holds for all s ≤ 1 if b ≤ 3/5 and for
/// no s if b > 8/13. So b is at most 3/5 here; on balanced graphs β̲ is 1.
pub fn fab_constants(c: &Constants, net: &Net, reading: Reading) -> FabConstants {
    let Net { n, alpha, beta, c: contraction, e, gamma } = *net;
    let (q, l2) = (beta.0 * c.mu, c.l_g1 * c.l_g1);
    let nearer = if reading == Reading::Mended { beta.0.min(0.6) } else { beta.0 };
    let base = l2 * n * n * alpha.1 * alpha.1 * beta.1 / (q * alpha.0 * beta.0 * nearer);
    let third = 672.0 * gamma * l2 / (e * if reading == Reading::Mended { contraction } else { n });
    FabConstants {
        c_b: [4.0 * base, 13.0 * base, third],
        aux: 2.0 * third * alpha.1 * beta.1 / contraction + 168.0 * gamma * l2 / e,
        q,
        nearer,
    }
}

/// The conditions of Lemma step_size_condition and Theorem fab_app.
pub fn fab(c: &Constants, net: &Net, lambda: f64, [x, y, z]: [f64; 3], reading: Reading) -> Vec<Condition> {
    let d = derived(c);
    let Net { n, alpha: (al, ah), beta: (bl, bh), c: cc, e, .. } = *net;
    let FabConstants { c_b: [c1, c2, c3], aux, q, nearer } = fab_constants(c, net, reading);
    let (l2, most, n2) = (c.l_g1 * c.l_g1, x.max(y).max(z), n * n);
    let penalty =
        |name, value: f64| Condition { name, value: 1.0 / lambda, bound: 1.0 / value, allows: value };
    let mut all = vec![
        penalty("1/λ ≤ 1", 1.0),
        penalty("1/λ ≤ L_g1/L_f1", c.l_f1 / c.l_g1),
        penalty("1/λ ≤ μ/(2L_f1)", 2.0 * c.l_f1 / c.mu),
        penalty("1/λ ≤ 4nc𝒞_b3/(5L_*2²)", 5.0 * d.l_star2 * d.l_star2 / (4.0 * n * cc * c3)),
    ];
    let plain = |name, bound: f64| Condition { name, value: most, bound, allows: bound };
    all.extend([
        plain("η ≤ 1", 1.0),
        plain("η ≤ (ᾱβ̄)²/(16n²𝒞_aux)", (ah * bh).powi(2) / (16.0 * n2 * aux)),
        plain("η ≤ 1/(8n²𝒞_aux)", 1.0 / (8.0 * n2 * aux)),
        plain("η ≤ 1/(4ᾱβ̄L_*1)", 1.0 / (4.0 * ah * bh * d.l_star1)),
    ]);
    let times = |name, bound: f64| Condition { name, value: lambda * most, bound, allows: bound / lambda };
    all.extend([
        times("λη ≤ 1/q", 1.0 / q),
        times("λη ≤ ᾱ²β̄/(12αβ𝒞_aux)", ah * ah * bh / (12.0 * al * bl * aux)),
        times("λη ≤ α²βc𝒞_b3/(90nL_g1²)", al * al * bl * cc * c3 / (90.0 * n * l2)),
        times("λη ≤ αβcq𝒞_b3/(120n𝒞_b1L_g1²)", al * nearer * cc * q * c3 / (120.0 * n * c1 * l2)),
        times("λη ≤ αβcq𝒞_b3/(320n𝒞_b2L_g1²)", al * nearer * cc * q * c3 / (320.0 * n * c2 * l2)),
        times("λη ≤ αβe/15", al * bl * e / 15.0),
        times("λη ≤ qβe/(20𝒞_b2)", q * nearer * e / (20.0 * c2)),
        times("λη ≤ αβ/(16n²𝒞_aux)", al * bl / (16.0 * n2 * aux)),
    ]);
    let kappa = c.mu / c.l_g1;
    let share = ah * ah * bh / (al * bl * aux);
    match reading {
        Reading::Printed => {
            let (ry, rz) = (kappa * (q / (432.0 * al * c2)).sqrt(), kappa * (q / (12.0 * al * c1)).sqrt());
            let curve = |name, low: f64, bound: f64| Condition {
                name,
                value: lambda * x * x / low,
                bound,
                allows: (bound * low / lambda).sqrt(),
            };
            let ratio =
                |name, low: f64, bound: f64| Condition { name, value: x / low, bound, allows: bound * low };
            all.extend([
                curve("ληx²/ηy ≤ ᾱ²β̄/(24αβ𝒞_aux)·r_y³", y, share / 24.0 * ry.powi(3)),
                ratio("ηx/ηy ≤ r_y", y, ry),
                curve("ληx²/ηz ≤ ᾱ²β̄/(6αβ𝒞_aux)·r_z³", z, share / 6.0 * rz.powi(3)),
                ratio("ηx/ηz ≤ r_z", z, rz),
            ]);
        }
        Reading::Mended => {
            // −1/Σα_{k+1}nβ_k is at most −1/(ᾱβ̄), not −1/(α̲β̲); and what the coefficients of y and z need
            // is a bound on ληy²/ηx (the printed one is the same where ηx/ηy is at its bound).
            let (ry, rz) = (
                kappa * (q * nearer / (432.0 * ah * bh * c2)).sqrt(),
                kappa * (q * nearer / (12.0 * ah * bh * c1)).sqrt(),
            );
            let curve = |name, low: f64, bound: f64| Condition {
                name,
                value: lambda * low * low / x,
                bound,
                allows: (bound * x / lambda).sqrt(),
            };
            let ratio =
                |name, low: f64, bound: f64| Condition { name, value: x / low, bound, allows: bound * low };
            all.extend([
                curve("ληy²/ηx ≤ ᾱ²β̄/(24αβ𝒞_aux)", y, share / 24.0),
                ratio("ηx/ηy ≤ r_y", y, ry),
                curve("ληz²/ηx ≤ ᾱ²β̄/(6αβ𝒞_aux)", z, share / 6.0),
                ratio("ηx/ηz ≤ r_z", z, rz),
                times("λη ≤ √(2e/(15𝒞_aux))", (2.0 * e / (15.0 * aux)).sqrt()),
                // Else a step overshoots along the most curved direction, and q_y is not (1 − ½ληq)².
                times("λη ≤ 1/(3β̄L_g1)", 1.0 / (3.0 * bh * c.l_g1)),
            ]);
        }
    }
    all
}

/// Steps (ηx, ηy = ηz) just inside all mended conditions, for a λ that satisfies its own.
pub fn fab_allowed(c: &Constants, net: &Net, lambda: f64) -> [f64; 3] {
    let bound = |eta: [f64; 3], name: &str| {
        fab(c, net, lambda, eta, Reading::Mended).iter().find(|c| c.name == name).map_or(0.0, |c| c.bound)
    };
    let one = [1.0; 3];
    let ratio = bound(one, "ηx/ηy ≤ r_y").min(bound(one, "ηx/ηz ≤ r_z"));
    let curve = bound(one, "ληy²/ηx ≤ ᾱ²β̄/(24αβ𝒞_aux)").min(bound(one, "ληz²/ηx ≤ ᾱ²β̄/(6αβ𝒞_aux)"));
    // With ηx = ratio·η the curve asks for λη/ratio ≤ bound. The factors at the end keep clear of rounding.
    let plain = fab(c, net, lambda, one, Reading::Mended)
        .into_iter()
        .filter(|c| c.name.starts_with('η') || c.name.starts_with("λη "));
    let low = plain
        .filter(|c| !c.name.contains('/') || !c.name.starts_with("ηx"))
        .map(|c| c.allows)
        .fold(curve * ratio.min(1.0) / lambda, f64::min);
    [0.999 * ratio.min(1.0) * low, low, low].map(|eta| 0.998 * eta)
}

/// The six coefficients of the proof's expansion of Φ^(b)(k+1) − Φ^(b)(k): of ‖x̂⁺ − x̂‖², ‖ẑ − y*‖², ‖ŷ −
/// y_λ*‖², (n/α̲)·V_D, V_S and ‖∇L_λ*‖². The lemma needs the first three and the fifth at most 0, the fourth
/// at most −c̲C_{b,3}/5, the sixth at most −α̲β̲ηx/4.
pub fn fab_coefficients(
    c: &Constants,
    net: &Net,
    lambda: f64,
    [x, y, z]: [f64; 3],
    reading: Reading,
) -> [f64; 6] {
    let d: Derived = derived(c);
    let Net { n, alpha: (al, ah), beta: (bl, bh), c: cc, e, gamma } = *net;
    let FabConstants { c_b: [c1, c2, c3], aux, q, nearer } = fab_constants(c, net, reading);
    let (l2, n2, squares) = (c.l_g1 * c.l_g1, n * n, x * x + y * y + z * z);
    let (big1, big2, big3) = (x * lambda / z * c1, x * lambda / y * c2, lambda * c3);
    let drift =
        |weight: f64, low: f64, factor: f64| weight * factor * l2 / (lambda * low * q * nearer * c.mu * c.mu);
    [
        -1.0 / (ah * bh * 2.0 * x) + d.l_star1 / 2.0 + drift(big1, z, 2.0) + drift(big2, y, 72.0),
        3.0 * x * lambda * lambda * l2 * n2 * ah * ah * bh / (al * bl) - big1 * lambda * z * q * nearer
            + lambda * aux * (4.0 * x * x + 2.0 * z * z) * n2 * lambda * lambda * l2,
        12.0 * x * lambda * lambda * l2 * n2 * ah * ah * bh / (al * bl) - big2 * lambda * y * q * nearer
            + lambda * aux * (4.0 * x * x + 8.0 * y * y) * n2 * lambda * lambda * l2,
        9.0 * n * lambda * lambda * l2 * x / (al * bl)
            + n * big1 * 12.0 * z * lambda * l2 / (q * nearer)
            + n * big2 * 32.0 * y * lambda * l2 / (q * nearer)
            - big3 * cc
            + 336.0 * gamma / e * lambda * l2
            + lambda * aux * 36.0 * n * lambda * lambda * l2 * squares,
        3.0 * x / (al * bl) + big1 * 4.0 * z / (lambda * q * nearer) + big2 * 4.0 * y / (lambda * q * nearer)
            - e / lambda
            + lambda * aux * squares,
        lambda * aux * 4.0 * n2 * x * x - x / 2.0 * al * bl,
    ]
}

/// The conditions of Lemma lyapunov_descent_single for AB/Push-Pull, with the smoothness `l` of the agents'
/// objectives, and of the theorem after it.
pub fn single(l: f64, net: &Net, eta: f64, reading: Reading) -> Vec<Condition> {
    let Net { n, alpha: (al, ah), beta: (bl, bh), c, e, gamma } = *net;
    let plain = |name, bound: f64| Condition { name, value: eta, bound, allows: bound };
    let l2 = l * l;
    if reading == Reading::Mended {
        let [p, s] = single_weights(l, net);
        let both = 2.0 * p * ah * bh / (c * n * al) + 12.0 * s * gamma * l2 / e;
        return vec![
            plain("η ≤ 1/(ᾱβ̄L)", 1.0 / (ah * bh * l)),
            plain("η ≤ pcαβ/(24nL²)", p * c * al * bl / (24.0 * n * l2)),
            plain("η ≤ seαβ/6", s * e * al * bl / 6.0),
            plain("η² ≤ pc/(16nL²Q)", (p * c / (16.0 * n * l2 * both)).sqrt()),
            plain("η² ≤ se/(2Q)", (s * e / (2.0 * both)).sqrt()),
            plain("η ≤ αβ/(8n²Q)", al * bl / (8.0 * n * n * both)),
        ];
    }
    let s1 = bl * c / (32.0 * ah * bh * n.powi(3));
    let tail = 12.0 * gamma * l2 / e;
    vec![
        plain("η ≤ 1/(ᾱβ̄L)", 1.0 / (ah * bh * l)),
        plain("η ≤ 𝒞_s1cen/(384γL²)", s1 * c * e * n / (384.0 * gamma * l2)),
        plain("η ≤ √(𝒞_s1cαβ/(48L²))", (s1 * c * al * bl / (48.0 * l2)).sqrt()),
        plain(
            "η ≤ √(𝒞_s1c/(192L²(2𝒞_s1β̄/c + 12γL²/e)))",
            (s1 * c / (192.0 * l2 * (s1 * 2.0 / c * bh + tail))).sqrt(),
        ),
        plain("η ≤ eαβ/12", e * al * bl / 12.0),
        plain(
            "η ≤ αβ/(16n²(2𝒞_s1nβ/c + 12γL²/e))",
            al * bl / (16.0 * n * n * (s1 * 2.0 / c * n * bl + tail)),
        ),
        plain("η ≤ eαβ/(384γL²n²)", e * al * bl / (384.0 * gamma * l2 * n * n)),
        plain("η ≤ 𝒞_s1nc/(4L²)", s1 * n * c / (4.0 * l2)),
    ]
}

/// The weights p of (n/α̲)·D and s of S in Φ^(s) = F + p(n/α̲)D + sS.
///
/// With the printed 𝒞_{s,2} = 1 the coefficient of D in the proof is positive (24γL²/e̲ against c̲𝒞_{s,1}n <
/// 1). s = pce/(96γL²) makes that term a quarter of pc, and p is chosen so that the two conditions that bind
/// (on S and on the gradient) allow the same step; both then have the right units.
pub fn single_weights(l: f64, net: &Net) -> [f64; 2] {
    let Net { n, alpha: (al, ah), beta: (_, bh), c, e, gamma } = *net;
    let p = (72.0 * gamma * l * l / (n * n * c * e * e * (2.0 * ah * bh / (c * n * al) + c / 8.0))).sqrt();
    [p, p * c * e / (96.0 * gamma * l * l)]
}

/// What is known to go wrong with the steps `eta` of x, y and z. `g` is g's factor in the directions (λ as
/// written, 1 normalised), `sigma_max` is the largest singular value of the lower solution's Jacobian,
/// `curvature` g's largest second derivative in y.
///
/// When y and z lag behind x, (I + ηx(1/ηy − 1/ηz)·M'M) dx/dk = −(ηx/λ)·∇F*: with ηx(1/ηz − 1/ηy)·σ_max² > 1
/// the matrix turns negative. (In units of the normalised form; in the written one the factors of g cancel.)
pub fn step_warnings([x, y, z]: [f64; 3], g: f64, sigma_max: f64, curvature: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    let lag = x * (1.0 / z - 1.0 / y) * sigma_max * sigma_max;
    if lag > 1.0 {
        warnings.push(format!(
            "will diverge: eta_x·(1/eta_z − 1/eta_y)·σ_max² = {lag:.3} is above 1; raise eta_z to at least \
            {:.4}",
            1.0 / (1.0 / y + 1.0 / (x * sigma_max * sigma_max))
        ));
    }
    for (name, eta) in [("eta_y", y), ("eta_z", z)] {
        let step = eta * g * curvature;
        if step >= 2.0 {
            warnings.push(format!(
                "will diverge: {name} times g's curvature is {step:.3}, at or above 2; {name} must be below \
                {:.3e} here (or use penalty_form = \"normalised\")",
                2.0 / (g * curvature)
            ));
        }
    }
    warnings
}

/// The largest step times curvature that a directed ring of weight w bears when its agents differ: w(1 −
/// w)²(2π/n)³/2, from the slowest mode of z² − (2ω − h)z + ω² − h = 0 with ω = 1 − w + we^{iθ} and θ = 2π/n.
/// Exact for large n.
pub fn ring_step(w: f64, n: usize) -> f64 {
    w * (1.0 - w).powi(2) * (2.0 * std::f64::consts::PI / n as f64).powi(3) / 2.0
}

/// By what factor an iteration multiplies the differences between agents, in the long run, if all have the
/// curvature `h` (step times second derivative): above 1 the network itself makes AB/Push-Pull unstable.
/// `kinds` has equal numbers for agents with equal data; differences between those never arise by themselves.
pub fn growth(sequence: &Sequence, kinds: &[usize], h: f64) -> f64 {
    let n = sequence.agents();
    let mut mixing = Mixing::<f64>::default();
    let period = sequence.period().filter(|p| *p * n <= 1 << 14);
    let kept: Vec<Mixing<f64>> = (0..period.unwrap_or(0)).map(|k| sequence.at(k)).collect();
    // Long enough to tell 1.001 from 1 on a small network.
    let long = (6_000_000 / (sequence.graphs().at(0).links() + n)).clamp(300, 12_000);
    // Not a constant: the mean is a mode of its own.
    let mut v: Vec<f64> = (0..n).map(|i| (kinds[i] as f64 * 2.399).sin()).collect();
    let mut t: Vec<f64> = v.iter().map(|v| h * v).collect();
    let (mut next_v, mut next_t) = (vec![0.0; n], vec![0.0; n]);
    let mut log = 0.0;
    for k in 0..long {
        let m = match kept.len() {
            0 => {
                sequence.fill(k, &mut mixing);
                &mixing
            }
            p => &kept[k % p],
        };
        next_v.fill(0.0);
        next_t.fill(0.0);
        m.for_each_entry(|i, j, a, b| {
            next_v[i] += a * v[j];
            next_t[i] += b * t[j];
        });
        for i in 0..n {
            next_v[i] -= t[i];
            next_t[i] += h * (next_v[i] - v[i]);
        }
        std::mem::swap(&mut v, &mut next_v);
        std::mem::swap(&mut t, &mut next_t);
        // Σt = hΣv, which rounding would let drift: that drift neither grows nor falls and would hide a fall.
        let drift = (h * v.iter().sum::<f64>() - t.iter().sum::<f64>()) / n as f64;
        t.iter_mut().for_each(|t| *t += drift);
        let size = |v: &[f64], t: &[f64]| v.iter().chain(t).map(|v| v * v).sum::<f64>().sqrt();
        let s = size(&v, &t);
        if s == 0.0 || !s.is_finite() {
            return if s == 0.0 { 0.0 } else { f64::INFINITY };
        }
        if k >= long / 3 {
            log += s.ln();
        }
        v.iter_mut().chain(&mut t).for_each(|v| *v /= s);
    }
    (log / (long - long / 3) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Cycle, ErdosRenyi, Static};
    use crate::mixing::Rule;
    use crate::problem::{Bilevel, PolicyEvaluation, Quadratic, Robust};
    use crate::theory::graph;
    use std::sync::Arc;

    #[test]
    fn the_table_s_divergent_rows_are_warned_of() {
        // σ_max² of the paper's instances is near 22.
        assert!(step_warnings([0.1; 3], 1.0, 4.7, 1.0).is_empty());
        assert!(step_warnings([0.1, 0.06, 0.1], 1.0, 4.7, 1.0).is_empty(), "slow, but it does not diverge");
        for eta in [[0.1, 0.12, 0.1], [0.1, 0.1, 0.08]] {
            assert_eq!(step_warnings(eta, 1.0, 4.7, 1.0).len(), 1);
        }
        assert_eq!(step_warnings([0.1; 3], 60.0, 4.7, 2.0).len(), 2);
    }

    fn nets() -> Vec<Net> {
        let mut all = Vec::new();
        for seed in 0..4 {
            for sequence in [
                // Balanced: β̲ is 1.
                Sequence::uniform(Static::complete(3 + seed as usize)),
                Sequence::uniform(ErdosRenyi::new(4, 0.5, seed, true)),
                Sequence::uniform(Cycle::new(3 + seed as usize, 0.3, seed)),
            ] {
                all.push(Net::new(
                    sequence.agents(),
                    graph::constants(&sequence, 30).mixing.as_ref().unwrap(),
                ));
            }
        }
        all
    }

    fn problems() -> Vec<Constants> {
        let mut all: Vec<Constants> =
            (0..3).map(|seed| Quadratic::random(4, 3, 4, seed, false).constants().unwrap()).collect();
        all.extend(
            (0..3).map(|seed| PolicyEvaluation::random(4, 8, 3, seed).normalised().constants().unwrap()),
        );
        all.extend((0..3).map(|seed| Robust::random(4, 3, 5, seed).constants().unwrap()));
        all
    }

    /// Inside the mended conditions every coefficient of the expansion has the sign that the lemma needs;
    /// with the printed 𝒞_{b,3} the one of V_D has not.
    #[test]
    fn the_conditions_give_the_descent() {
        for (net, c) in nets().iter().flat_map(|net| problems().into_iter().map(move |c| (net, c))) {
            let lambda = 2.0
                * derived(&c).lambda.max(
                    5.0 * derived(&c).l_star2.powi(2)
                        / (4.0 * net.n * net.c * fab_constants(&c, net, Reading::Mended).c_b[2]),
                );
            let eta = fab_allowed(&c, net, lambda);
            let conditions = fab(&c, net, lambda, eta, Reading::Mended);
            for condition in &conditions {
                assert!(condition.margin() >= 1.0, "{condition:?}");
            }
            assert!(eta[0] > 0.0 && binding(&conditions).unwrap().margin() < 3.0, "not far inside either");
            let signs = fab_coefficients(&c, net, lambda, eta, Reading::Mended);
            let third = fab_constants(&c, net, Reading::Mended).c_b[2];
            for i in [0, 1, 2, 4] {
                assert!(signs[i] <= 0.0, "coefficient {} is {}", i + 1, signs[i]);
            }
            assert!(
                signs[3] <= -0.19 * net.c * third * lambda
                    && signs[5] <= -0.25 * net.alpha.0 * net.beta.0 * eta[0] * (1.0 - 1e-9),
                "{signs:?}"
            );
            assert!(fab_coefficients(&c, net, lambda, eta, Reading::Printed)[3] > 0.0);
        }
    }

    /// How much nearer y comes with the constants that the lemma uses, for each step and part b of it.
    #[test]
    fn y_comes_nearer_by_the_part_that_is_said() {
        let holds = |b: f64| {
            (1..=1000)
                .map(|i| i as f64 / 1000.0)
                .all(|s| 8.0 * (1.0 - s / 2.0).powi(2) <= (1.0 - s * b) * (8.0 - 5.0 * s * b) * (1.0 + 1e-15))
        };
        assert!(holds(0.6) && holds(0.3) && holds(0.01));
        assert!(!holds(8.0 / 13.0) && !holds(1.0), "as printed, on balanced graphs");
        let c = problems().remove(0);
        for net in nets() {
            let part = |reading| fab_constants(&c, &net, reading).nearer;
            assert!(holds(part(Reading::Mended)) && part(Reading::Mended) <= part(Reading::Printed));
        }
        assert!(nets().iter().any(|net| !holds(fab_constants(&c, net, Reading::Printed).nearer)));
    }

    #[test]
    fn single_level_conditions_give_the_descent() {
        for (net, l) in nets().iter().flat_map(|net| [0.1, 1.0, 30.0].map(move |l| (net, l))) {
            let eta =
                single(l, net, 1.0, Reading::Mended).iter().map(|c| c.allows).fold(f64::INFINITY, f64::min);
            let [p, s] = single_weights(l, net);
            let Net { n, alpha: (al, ah), beta: (bl, bh), c, e, gamma } = *net;
            let both = 2.0 * p * ah * bh / (c * n * al) + 12.0 * s * gamma * l * l / e;
            let of_d = 3.0 * eta * l * l * n / (al * bl) - p * c
                + s * 24.0 * gamma * l * l / e
                + both * eta * eta * 2.0 * n * l * l;
            let of_s = 3.0 * eta / (al * bl) - s * e + both * eta * eta;
            let of_gradient = -eta * al * bl / 2.0 + both * 2.0 * n * n * eta * eta;
            assert!(
                of_d <= -p * c / 4.0
                    && of_s <= 1e-12 * s * e
                    && of_gradient <= -eta * al * bl / 4.0 * (1.0 - 1e-9),
                "{of_d} {of_s} {of_gradient}"
            );
        }
    }

    /// A ring's critical step against the formula, which the slowest mode gives for large n.
    #[test]
    fn rings_bear_the_cube_of_their_size() {
        for (n, w) in [(20, 0.2), (30, 0.4)] {
            let ring = Sequence::new(Arc::new(Static::ring(n)), Rule::BySender(vec![w])).unwrap();
            let kinds: Vec<usize> = (0..n).collect();
            let (low, high) = (0.7 * ring_step(w, n), 1.4 * ring_step(w, n));
            assert!(
                growth(&ring, &kinds, low) < 1.0 && growth(&ring, &kinds, high) > 1.0,
                "n = {n}, w = {w}"
            );
        }
        // Five patterns in turn on twenty agents are a ring of five.
        let ring = Sequence::new(Arc::new(Static::ring(20)), Rule::BySender(vec![0.2])).unwrap();
        assert!(growth(&ring, &(0..20).map(|i| i % 5).collect::<Vec<_>>(), 0.1) < 1.0);
        assert!(growth(&ring, &(0..20).map(|i| i / 4).collect::<Vec<_>>(), 0.1) > 1.0);
    }
}
