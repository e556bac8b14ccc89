//! The direction rules by name, with their numbers.
use super::{Direction, NeumannLocal, Penalised, Soba, SobaFd, X, Y, Z};
use crate::algorithm::Needs;
use crate::problem::Start;
use crate::rows::Real;

/// The rules with their numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// ∇f and λ∇g of the penalty function, or of the Moreau envelope where there is a γ.
    Penalised(Penalised),
    /// SOBA's, with second-order products.
    Soba,
    /// The same with differences of gradients.
    SobaFd(SobaFd),
    /// Each agent's own Neumann series.
    NeumannLocal(NeumannLocal),
}

impl Rule {
    /// The rule on numbers of one type.
    pub fn make<T: Real>(&self) -> Box<dyn Direction<T>> {
        match self {
            Rule::Penalised(rule) => Box::new(*rule),
            Rule::Soba => Box::new(Soba),
            Rule::SobaFd(rule) => Box::new(*rule),
            Rule::NeumannLocal(rule) => Box::new(*rule),
        }
    }

    /// What it needs of a problem.
    pub fn needs(&self) -> Needs {
        match self {
            Rule::Soba | Rule::NeumannLocal(_) => Needs::SecondOrder,
            Rule::Penalised(_) | Rule::SobaFd(_) => Needs::FirstOrder,
        }
    }

    /// The variables in the order of a sequential sweep.
    pub fn order(&self) -> &'static [usize] {
        match self {
            Rule::Penalised(_) => &[Z, Y, X],
            Rule::Soba | Rule::SobaFd(_) => &[Y, Z, X],
            Rule::NeumannLocal(_) => &[Y, X],
        }
    }

    /// Whether there is a z.
    pub fn has_z(&self) -> bool {
        !self.is_a_series()
    }

    /// Whether it is Neumann's series.
    pub fn is_a_series(&self) -> bool {
        matches!(self, Rule::NeumannLocal(_))
    }

    /// Where z starts: y's twin, or SOBA's auxiliary variable.
    pub fn start_of_z<'a>(&self, start: &'a Start) -> &'a Vec<Vec<f64>> {
        if matches!(self, Rule::Penalised(_)) { start.twin() } else { &start.v }
    }

    /// Says which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Rule::Penalised(rule) => rule.check(),
            Rule::Soba => Ok(()),
            Rule::SobaFd(rule) => rule.check(),
            Rule::NeumannLocal(rule) => rule.check(),
        }
    }
}
