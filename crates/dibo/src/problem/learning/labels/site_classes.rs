//! How common each class is at one site. Sites differ in it: a hospital for children sees other diagnoses
//! than one for the old. A model that all learn together knows how common classes are among all rows; what
//! it says of a site's rows is mended by what that site finds out for itself, from its rows alone (Saerens,
//! Latinne and Decaestecker, Neural Computation 2002).

/// Times through a site's rows.
const TIMES: usize = 20;

/// How common classes are among all rows counts as much as so many rows of the site.
const BEFORE: f64 = 10.0;

/// How much more common each class is at a site than among all rows, where it has the share `all`; from the
/// model's probabilities `p` of the site's rows, row by row.
///
/// EM: the share s_c of class c at the site is the mean over its rows of p_c r_c / Σ p r with r = s / all.
pub fn factors(p: &[f64], all: &[f64]) -> Vec<f64> {
    let classes = all.len();
    let mut factors = vec![1.0; classes];
    let rows = (p.len() / classes) as f64;
    let mut sums = vec![0.0; classes];
    for _ in 0..TIMES {
        sums.fill(0.0);
        for p in p.chunks_exact(classes) {
            let total: f64 = p.iter().zip(&factors).map(|(p, r)| p * r).sum();
            if total > 0.0 {
                let parts = p.iter().zip(&factors).map(|(p, r)| p * r / total);
                sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            }
        }
        for ((r, sum), all) in factors.iter_mut().zip(&sums).zip(all) {
            *r = (sum + BEFORE * all) / ((rows + BEFORE) * all);
        }
    }
    factors
}

/// The probabilities of a row, mended.
pub fn mend(p: &mut [f64], factors: &[f64]) {
    p.iter_mut().zip(factors).for_each(|(p, r)| *p *= r);
    let total: f64 = p.iter().sum();
    if total > 0.0 {
        p.iter_mut().for_each(|p| *p /= total);
    }
}
