//! What a cell says of itself.
use super::afar;
use super::cell::{Cell, Recipe};
use super::direction::Rule;
use super::mixer::Mix;
use super::{Axis, GraphNeeds, Mixes, Needs, Parameters, PenaltySteps, Tier, Vectors, step_tiers};

impl<R: Recipe> Parameters for Cell<R> {
    fn check(&self) -> Result<(), String> {
        self.0.spec()?.check()
    }

    fn needs(&self) -> Needs {
        self.0.spec().map_or(Needs::FirstOrder, |s| s.direction.needs())
    }

    fn mixes(&self) -> Mixes {
        self.0.spec().map_or(Mixes::Pull, |s| {
            let rules = s.direction.order().iter().map(|v| s.mixing[*v].mixes());
            let first = s.mixing[0].mixes();
            match (first, s.together()) {
                (Mixes::PullAndPush, false) => Mixes::PullAndPushInLoops,
                _ if rules.clone().all(|m| m == first) => first,
                _ => Mixes::PullAndPushInLoops,
            }
        })
    }

    fn graph_needs(&self) -> GraphNeeds {
        self.0.spec().map_or_else(
            |_| GraphNeeds::default(),
            |s| {
                let used: Vec<Mix> = s.direction.order().iter().map(|v| s.mixing[*v]).collect();
                Mix::needs_of(&used)
            },
        )
    }

    fn rounds(&self) -> usize {
        self.0.spec().map_or(1, |s| s.rounds())
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        self.0.spec().map_or_else(|_| Vectors::default(), |s| s.vectors())
    }

    /// The penalty where there is one, then the steps of x and y, which z's follows.
    fn tiers(&self) -> Vec<Tier> {
        let keys = self.0.keys();
        let penalty = match self.0.spec().map(|s| s.direction) {
            Ok(Rule::Penalised(p)) if p.gamma.is_some() => {
                Some(Axis::values("mu", &[0.003, 0.01, 0.03, 0.1, 0.3, 1.0]))
            }
            Ok(Rule::Penalised(_)) => Some(Axis::lambda()),
            _ => None,
        };
        let with_y = |p| Tier { axes: vec![p, Axis::around(keys[1], &[0.1, 1.0], 0.01)], fine: false };
        step_tiers(keys, penalty.map(with_y))
    }

    /// On AB with plain estimators the penalty's cell is FAB, whose steps are known.
    fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
        let spec = self.0.spec().ok()?;
        let Rule::Penalised(p) = &spec.direction else { return None };
        let (f, g) = (p.f.at(k), p.g.at(k));
        p.gamma.is_none().then(|| PenaltySteps { lambda: g / f, eta: spec.eta(k), g })
    }

    fn more_on_device(&self) -> usize {
        self.0.spec().map_or(0, |s| if s.direction.is_a_series() { afar::VECTORS } else { 0 })
    }

    fn about() -> &'static str {
        R::ABOUT
    }

    /// 2: a series in one pass, where the problem has it.
    fn version(&self) -> u32 {
        1 + u32::from(self.0.spec().is_ok_and(|s| s.direction.is_a_series()))
    }
}
