//! What the theorems say about a setting's steps, and what is known of network and problem, in words.
use super::Known;
use crate::setting::Setting;
use dibo::algorithm::{PenaltySteps, Theorem};
use dibo::problem::Constants;
use dibo::theory::graph::GraphConstants;
use dibo::theory::problem::derived;
use dibo::theory::steps::{self, Condition, Reading, binding};
use dibo_report::report::words::number;
use std::fmt::Write;

pub(super) fn network(g: &GraphConstants) -> String {
    let mut text = format!(
        "Network: {} agents, {:.1} links an iteration; smallest weights a = {}, b = {}.\n",
        g.agents,
        g.links,
        number(g.a),
        number(g.b)
    );
    let looked = if g.whole {
        format!("one period of {}", g.looked_at)
    } else {
        format!("{} iterations looked at", g.looked_at)
    };
    text += &match g.window {
        Some(1) => format!("  Strongly connected at every iteration ({looked}), as the theorems ask.\n"),
        Some(c) => {
            format!(
                "  Connected only over windows of C = {c} iterations ({looked}); the theorems' constants \
                are those of a window.\n"
            )
        }
        None => format!("  Not connected over any window of the {looked}: the theorems do not apply.\n"),
    };
    if g.lossy {
        text += "  Weights are lost: links that are down take their share with them, rows of A or columns \
            of B do not sum to 1. No theorem applies.\n";
    }
    let Some(m) = &g.mixing else { return text };
    let _ = writeln!(
        text,
        "  Diameter at most {}, edge-utility {} {}. n·α_k lies in [{}, {}], n·β_k in [{}, {}] (the worst \
        case aⁿ is {}).",
        m.diameter,
        if m.utility.exact { "exactly" } else { "at most" },
        m.utility.value,
        number(m.alpha.0),
        number(m.alpha.1),
        number(m.beta.0),
        number(m.beta.1),
        number(g.a.powi(g.agents as i32))
    );
    let window = if g.window == Some(1) {
        "an iteration".to_string()
    } else {
        format!("every {} iterations", g.window.unwrap_or(1))
    };
    let _ = writeln!(
        text,
        "  Disagreement: the lemmas promise 1 − c = 1 − {} (trackers 1 − e = 1 − {}) {window}; the worst \
        measured is {} ({}), and over a long stretch it is {} ({}) an iteration.",
        number(m.worst.c),
        number(m.worst.e),
        number(1.0 - m.worst.measured_c),
        number(1.0 - m.worst.measured_e),
        number(m.rate.0),
        number(m.rate.1)
    );
    text
}

pub(super) fn about_problem(c: &Constants) -> String {
    let d = derived(c);
    let how = if c.exact {
        format!("closed forms ({})", c.region)
    } else {
        format!("estimated {} from a few agents, so too small rather than too large", c.region)
    };
    let single = c.l_single.map_or(String::new(), |l| format!(", single-level L = {}", number(l)));
    let mut text = format!(
        "Problem: μ = {}, L_f0 = {}, L_f1 = {}, L_f2 = {}, L_g1 = {}, L_g2 = {}{single}: {how}.\n",
        number(c.mu),
        number(c.l_f0),
        number(c.l_f1),
        number(c.l_f2),
        number(c.l_g1),
        number(c.l_g2)
    );
    if c.mu <= 0.0 {
        text +=
            "  The lower level is not strongly convex where it was looked at: the theorems do not apply.\n";
    } else {
        let _ = writeln!(
            text,
            "  So L_*1 = {}, L_*2 = {}, the penalty's bias is at most √C_gap/λ = {}/λ, and the lemmas need \
            λ ≥ {}.",
            number(d.l_star1),
            number(d.l_star2),
            number(d.c_gap.sqrt()),
            number(d.lambda)
        );
    }
    text
}

/// What the theorems say about a setting's steps.
pub(super) fn proofs(setting: &Setting, place: &Known) -> Vec<String> {
    let (Some(net), Some(c)) = (&place.net, &place.constants) else { return Vec::new() };
    let parameters = setting.parameters();
    if c.mu <= 0.0 {
        return Vec::new();
    }
    if let Some(PenaltySteps { lambda, eta, g }) =
        parameters.penalty_steps(0).filter(|_| parameters.theorem() == Some(Theorem::Penalty))
    {
        let written = eta.map(|e| e * g / lambda);
        if written[0] == 0.0 {
            return vec!["theorem: x does not move (eta_x = 0), so only the lower level is solved".into()];
        }
        let all = steps::fab(c, net, lambda, written, Reading::Mended);
        let (of_lambda, of_steps): (Vec<Condition>, Vec<Condition>) =
            all.into_iter().partition(|c| c.name.starts_with("1/λ"));
        let worst = of_lambda.iter().map(|c| c.allows).fold(0.0, f64::max);
        let mut lines = vec![match worst <= lambda {
            true => format!("theorem: λ = {} is large enough (at least {})", number(lambda), number(worst)),
            false => format!(
                "theorem: λ = {} is too small for the lemmas, which need at least {}",
                number(lambda),
                number(worst)
            ),
        }];
        // The normalised form's steps are λ times the written ones.
        let form = lambda / g;
        let allowed = steps::fab_allowed(c, net, lambda.max(worst)).map(|e| e * form);
        lines.push(verdict(
            &of_steps,
            &format!("eta_x = {}, eta_y = eta_z = {}", number(allowed[0]), number(allowed[1])),
        ));
        return lines;
    }
    if let (Some(eta), Some(l), Some(Theorem::SingleLevel)) =
        (parameters.single_step(0), c.l_single, parameters.theorem())
    {
        let all = steps::single(l, net, eta, Reading::Mended);
        let allowed = all.iter().map(|c| c.allows).fold(f64::INFINITY, f64::min);
        return vec![verdict(&all, &format!("eta = {}", number(allowed)))];
    }
    Vec::new()
}

fn verdict(conditions: &[Condition], allowed: &str) -> String {
    let Some(worst) = binding(conditions) else { return String::new() };
    match worst.margin() >= 1.0 {
        true => format!(
            "theorem: the steps are inside all {} conditions; {} binds with margin {}; up to {allowed}",
            conditions.len(),
            worst.name,
            number(worst.margin())
        ),
        false => {
            let broken = conditions.iter().filter(|c| c.margin() < 1.0).count();
            format!(
                "theorem: does not cover these steps ({broken} of {} conditions fail; {} most, by a factor \
                {}); it covers {allowed}. Its constants are worst cases",
                conditions.len(),
                worst.name,
                number(1.0 / worst.margin())
            )
        }
    }
}
