//! What the methods with inner loops say of themselves.
use super::afar;
use super::c2dfb::C2dfb;
use super::hgp::Hgp;
use super::loops::{check_rounds, check_share};
use super::ma_dsbo::MaDsbo;
use super::mixer::Mix;
use super::{Axis, GraphNeeds, Mixes, Needs, Parameters, Tier, Vectors, step_tiers};

impl Parameters for Hgp {
    fn check(&self) -> Result<(), String> {
        self.eta_x.check("eta_x", false)?;
        self.eta_y.check("eta_y", false)?;
        check_rounds("inner", self.inner)?;
        check_rounds("terms", self.terms)?;
        check_rounds("pushes", self.pushes)?;
        match self.alpha > 0.0 && self.alpha.is_finite() {
            true => Ok(()),
            false => Err(format!("alpha is {}; it must be above 0", self.alpha)),
        }
    }

    fn needs(&self) -> Needs {
        Needs::SecondOrder
    }

    fn mixes(&self) -> Mixes {
        Mixes::PushSum
    }

    fn rounds(&self) -> usize {
        self.inner + self.terms * self.pushes
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 2, lower: 5, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        step_tiers(["eta_x", "eta_y"], None)
    }

    fn more_on_device(&self) -> usize {
        afar::VECTORS + 2
    }

    fn about() -> &'static str {
        "as published, for an x of each agent's own; agrees with the authors' code"
    }
}

impl Parameters for MaDsbo {
    fn check(&self) -> Result<(), String> {
        self.eta_x.check("eta_x", false)?;
        self.eta_y.check("eta_y", false)?;
        self.eta_z.unwrap_or(self.eta_y).check("eta_z", false)?;
        check_rounds("inner", self.inner)?;
        check_rounds("inner_z", self.inner_z)?;
        check_share("theta", self.theta)
    }

    fn needs(&self) -> Needs {
        Needs::SecondOrder
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPushInLoops
    }

    fn graph_needs(&self) -> GraphNeeds {
        Mix::needs_of(&[Mix::Gt])
    }

    fn rounds(&self) -> usize {
        self.inner + self.inner_z + 1
    }

    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 4, lower: 7, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        step_tiers(["eta_x", "eta_y"], None)
    }

    fn more_on_device(&self) -> usize {
        afar::VECTORS
    }

    fn about() -> &'static str {
        "as published; with tracked = true a variant rebuilt from a name in others' legends"
    }
}

impl Parameters for C2dfb {
    fn check(&self) -> Result<(), String> {
        self.lambda.check("lambda", false)?;
        self.eta_x.check("eta_x", false)?;
        self.eta_y.check("eta_y", false)?;
        self.eta_z.unwrap_or(self.eta_y).check("eta_z", false)?;
        check_rounds("inner", self.inner)?;
        check_share("gossip_in", self.gossip_in)?;
        check_share("gossip_out", self.gossip_out)?;
        match self.top {
            Some(0) => Err("top is 0; at least one entry must be sent".into()),
            _ => Ok(()),
        }
    }

    fn mixes(&self) -> Mixes {
        Mixes::PullAndPushInLoops
    }

    fn graph_needs(&self) -> GraphNeeds {
        GraphNeeds { doubly_stochastic: true, one_graph: true }
    }

    fn rounds(&self) -> usize {
        2 * self.inner + 1
    }

    /// Of x: itself, its tracker, what both are pulled to, and a direction. Of y and z: the first four, what
    /// neighbours hold of the first two, and a gradient; and room for one more.
    fn vectors(&self, _blocks: usize) -> Vectors {
        Vectors { upper: 5, lower: 15, single: 0 }
    }

    fn tiers(&self) -> Vec<Tier> {
        step_tiers(["eta_x", "eta_y"], Some(Tier { axes: vec![Axis::lambda()], fine: false }))
    }

    fn more_on_device(&self) -> usize {
        afar::VECTORS
    }

    fn about() -> &'static str {
        "rebuilt from the paper's abstract: a reading, not the authors' algorithm box"
    }
}
