//! What a cell says of itself.
use super::cell::{Cell, Recipe, Spec, Sweep};
use super::direction::{Rule, Z};
use super::estimator::Estimator;
use super::mixer::Mix;
use super::{Axis, FINE, GraphNeeds, Mixes, Needs, Parameters, PenaltySteps, Tier, Vectors};

impl Spec {
    /// Says which number is out of range; the message begins with its key.
    pub fn check(&self) -> Result<(), String> {
        self.direction.check()?;
        self.estimator.iter().try_for_each(Estimator::check)?;
        // ηx = 0 freezes the upper variable.
        self.eta[0].check("eta_x", true)?;
        self.eta[1].check("eta_y", false)?;
        self.eta[2].check("eta_z", false)?;
        if let Some(c) = self.share.iter().find(|c| !(**c > 0.0 && **c <= 1.0)) {
            return Err(format!("damping is {c}; it must be above 0 and at most 1"));
        }
        let push_sum = |m: &Mix| m.mixes() == Mixes::PushSum;
        if self.mixing.iter().zip(self.share).any(|(m, c)| push_sum(m) && c != 1.0) {
            return Err("damping belongs to rules that pull; push-sum has no A to soften".into());
        }
        match self.radius_z {
            Some(r) if !(r > 0.0 && r.is_finite()) => Err(format!("radius_z is {r}; it must be above 0")),
            Some(_) if push_sum(&self.mixing[Z]) => {
                Err("radius_z belongs to rules that pull; push-sum's estimate cannot be projected".into())
            }
            _ => Ok(()),
        }
    }

    fn rounds(&self) -> usize {
        let each = self.direction.order().iter().map(|v| self.mixing[*v].rounds());
        if self.sweep == Sweep::Sequential { each.sum() } else { each.max().unwrap_or(1) }
    }

    /// One rule for all variables, in a simultaneous sweep.
    fn together(&self) -> bool {
        let same = |v: usize| self.mixing[v] == self.mixing[0] && self.share[v] == self.share[0];
        self.sweep == Sweep::Simultaneous && (0..3).all(same)
    }

    fn vectors(&self) -> Vectors {
        let plain = self.estimator.iter().all(|e| *e == Estimator::Plain);
        let storm = self.estimator.iter().any(Estimator::looks_back);
        let points = if self.sweep == Sweep::Sequential { 3 } else { 1 };
        let of = |v: usize| {
            let own = if self.together() { 0 } else { 2 };
            let estimates = if plain { 0 } else { 2 } + if storm { 1 + points } else { 0 };
            2 + own + estimates + self.mixing[v].vectors() + usize::from(self.share[v] != 1.0)
        };
        let z = if self.direction.has_z() { of(2) } else { 0 };
        Vectors { upper: of(0), lower: of(1) + z, single: 0 }
    }
}

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
        let axes = |factors: &[f64]| keys.map(|key| Axis::around(key, factors, 0.01));
        let coarse = axes(&[0.03, 0.1, 0.3, 1.0, 3.0, 10.0]).map(Axis::or_listed);
        let penalty = match self.0.spec().map(|s| s.direction) {
            Ok(Rule::Penalised(p)) if p.gamma.is_some() => {
                Some(Axis::values("mu", &[0.003, 0.01, 0.03, 0.1, 0.3, 1.0]))
            }
            Ok(Rule::Penalised(_)) => Some(Axis::values("lambda", &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0])),
            _ => None,
        };
        let first =
            penalty.map(|p| Tier { axes: vec![p, Axis::around(keys[1], &[0.1, 1.0], 0.01)], fine: false });
        let steps =
            [Tier { axes: coarse.into(), fine: false }, Tier { axes: axes(&FINE).into(), fine: true }];
        first.into_iter().chain(steps).collect()
    }

    /// On AB with plain estimators the penalty's cell is FAB, whose steps are known.
    fn penalty_steps(&self, k: usize) -> Option<PenaltySteps> {
        let spec = self.0.spec().ok()?;
        let Rule::Penalised(p) = &spec.direction else { return None };
        let (f, g) = (p.f.at(k), p.g.at(k));
        p.gamma.is_none().then(|| PenaltySteps { lambda: g / f, eta: spec.eta(k), g })
    }

    /// Directions of the penalty are the problem's own, which may lie on a device; the rest is for the host.
    fn on_device(&self) -> bool {
        let on_device = |s: Spec| {
            let Rule::Penalised(p) = &s.direction else { return false };
            let plain = s.estimator.iter().all(|e| *e == Estimator::Plain);
            p.gamma.is_none() && plain && s.together() && s.radius_z.is_none()
        };
        self.0.spec().is_ok_and(on_device)
    }

    fn about() -> &'static str {
        R::ABOUT
    }
}
