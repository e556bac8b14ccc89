//! What follows from a problem's constants: smoothness of L_λ* and of F*, the penalty's bias, how large λ
//! must be.
use crate::problem::Constants;

/// Constants that follow from those of Assumption 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derived {
    /// L_{*,1}: smoothness of the penalty function L_λ*.
    pub l_star1: f64,
    /// L_{*,2}: smoothness of F*.
    pub l_star2: f64,
    /// C_gap with ‖∇L_λ* − ∇F*‖ ≤ √C_gap / λ.
    pub c_gap: f64,
    /// The smallest penalty for which the lemmas hold: max {1, L_f1/L_g1, 2L_f1/μ}.
    pub lambda: f64,
}

/// The formulas of Lemma smoothness and Theorem fab_app.
///
/// C_gap is printed with L_{g,2}L_{g,1}/μ and an L_{g,0} that is defined nowhere; with g quadratic (L_{g,2} =
/// 0) it would say that the bias is at most L_f1·L_f0/(λμ), which is false. The derivation gives
/// L_{f,1}L_{g,1}/μ and L_{f,0} in their places, and that is what stands here.
pub fn derived(c: &Constants) -> Derived {
    let Constants { mu, l_f0, l_f1, l_g1, l_g2, .. } = *c;
    let kappa = l_g1 / mu;
    let l_star1 = (l_f1 + 4.0 * l_f1 * kappa + l_f0 * l_g2 / mu + l_f0 * l_g1 * l_g2 / (mu * mu) + l_g1)
        * (1.0 / mu + 2.0 * l_g1 / (mu * mu))
        * (l_f1 + l_f0 * l_g2 / mu);
    let l_star2 = (2.0 * l_f1 + l_f1 * kappa + l_f0 * (2.0 * l_g2 / mu + l_g2 * l_g1 / (mu * mu))) * kappa
        + l_f1
        + l_f0 * (l_g2 * l_f0 / mu + l_g2 * l_f0 * l_f0 / (mu * mu));
    let gap =
        (l_f1 + l_f1 * kappa + l_f0 * l_g1 * l_g2 / (2.0 * mu * mu) + l_f0 * l_g2 / (2.0 * mu)) * l_f0 / mu;
    Derived { l_star1, l_star2, c_gap: gap * gap, lambda: 1f64.max(l_f1 / l_g1).max(2.0 * l_f1 / mu) }
}
