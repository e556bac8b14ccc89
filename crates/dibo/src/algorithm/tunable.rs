//! The parameters of an algorithm that can be tuned, and where to look for them.

/// A parameter that can be tuned.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its key in an experiment file.
    pub key: &'static str,
    /// Where to look.
    pub grid: Grid,
    /// Whether a list in the file is taken instead of the grid.
    pub listed: bool,
}

/// Values of a parameter to try.
#[derive(Clone, Debug, PartialEq)]
pub enum Grid {
    /// These.
    Values(Vec<f64>),
    /// Multiples of what the file says; of `otherwise`, if it says nothing.
    Around {
        /// The factors.
        factors: Vec<f64>,
        /// Where there is no value.
        otherwise: f64,
    },
}

impl Axis {
    /// These values, unless the file has a list.
    pub fn values(key: &'static str, values: &[f64]) -> Self {
        Axis { key, grid: Grid::Values(values.into()), listed: true }
    }

    /// Multiples of the file's value.
    pub fn around(key: &'static str, factors: &[f64], otherwise: f64) -> Self {
        Axis { key, grid: Grid::Around { factors: factors.into(), otherwise }, listed: false }
    }

    /// The penalty λ, from mild to hard.
    pub fn lambda() -> Self {
        Axis::values("lambda", &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0])
    }

    /// The same, unless the file has a list.
    pub fn or_listed(self) -> Self {
        Axis { listed: true, ..self }
    }
}

/// Axes that are searched together; later tiers start from the best of the earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// One or two.
    pub axes: Vec<Axis>,
    /// It only refines what an earlier tier found.
    pub fine: bool,
}

/// Three values close to what was found.
pub const FINE: [f64; 3] = [1.0 / 1.7, 1.0, 1.7];

/// Steps by these keys, coarsely and then finely, after a tier of the method's own.
pub fn step_tiers(keys: [&'static str; 2], first: Option<Tier>) -> Vec<Tier> {
    let axes = |factors: &[f64]| keys.map(|key| Axis::around(key, factors, 0.01));
    let coarse = axes(&[0.03, 0.1, 0.3, 1.0, 3.0, 10.0]).map(Axis::or_listed);
    let steps = [Tier { axes: coarse.into(), fine: false }, Tier { axes: axes(&FINE).into(), fine: true }];
    first.into_iter().chain(steps).collect()
}
