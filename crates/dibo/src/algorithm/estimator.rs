//! How noise is treated: what a variable moves along, made of the directions it has seen.
use super::loops::check_share;
use super::stacks::like;
use crate::rows::{Real, Stack, Threads};
use crate::schedule::Schedule;

/// An estimator of one variable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Estimator {
    /// The direction itself.
    #[default]
    Plain,
    /// m⁺ = (1 − θ) m + θ d.
    Momentum {
        /// θ.
        theta: f64,
        /// m is used one iteration late.
        late: bool,
        /// m⁰ is the first direction, not 0.
        warm: bool,
    },
    /// m⁺ = (1 − a)(m + d − d₋) + a d, with d₋ at the previous point and the present sample.
    Storm {
        /// a, which may fall: the noise of m then goes to 0.
        a: Schedule,
    },
}

impl Estimator {
    /// Says which number is out of range.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Estimator::Plain => Ok(()),
            Estimator::Momentum { theta, .. } => check_share("theta", *theta),
            Estimator::Storm { a } => a.check("a", false).and_then(|()| check_share("a", a.at(0))),
        }
    }

    /// Whether it is STORM.
    pub fn looks_back(&self) -> bool {
        matches!(self, Estimator::Storm { .. })
    }
}

/// The memory of the estimators of x, y and z, and room for what they are made of.
pub struct Estimates<T> {
    kinds: [Estimator; 3],
    /// m.
    pub m: Stack<T, 3>,
    /// d.
    pub fresh: Stack<T, 3>,
    /// d₋, where STORM asks for it.
    pub back: Option<Stack<T, 3>>,
}

impl<T: Real> Estimates<T> {
    /// For a stack of this shape; `None` where all are plain.
    pub fn new(kinds: [Estimator; 3], shape: &Stack<T, 3>) -> Option<Self> {
        let zero = like(shape);
        let back = kinds.iter().any(Estimator::looks_back).then(|| zero.clone());
        let all_plain = kinds.iter().all(|kind| *kind == Estimator::Plain);
        (!all_plain).then(|| Estimates { kinds, m: zero.clone(), fresh: zero, back })
    }

    /// Whether a variable moves along its direction itself.
    pub fn plain(&self, variable: usize) -> bool {
        self.kinds[variable] == Estimator::Plain
    }

    /// From fresh directions of these variables to `used`, what the variables move along.
    pub fn take(&mut self, k: usize, only: Option<usize>, used: &mut Stack<T, 3>, threads: &Threads) {
        let wanted = |variable: usize| only.is_none_or(|only| only == variable);
        let Self { kinds, m, fresh, back } = self;
        let late = |v: usize| matches!(kinds[v], Estimator::Momentum { late: true, .. });
        if m.on_device() {
            (0..3)
                .filter(|v| wanted(*v))
                .for_each(|v| on_device(kinds[v], k, v, [m, used], fresh, back.as_ref()));
            return;
        }
        copy(m, used, threads, |v| wanted(v) && late(v));
        m.for_each_row(threads, 16, |_, row, m| {
            let (d, back) = (fresh.row(row), back.as_ref().map(|b| b.row(row)));
            for (v, m) in m.into_iter().enumerate().filter(|(v, _)| wanted(*v)) {
                match (kinds[v], back.map(|b| b[v])) {
                    (Estimator::Momentum { theta, warm, .. }, _) if !(k == 0 && warm) => {
                        let (stay, go) = (T::of(1.0 - theta), T::of(theta));
                        m.iter_mut().zip(d[v]).for_each(|(m, d)| *m = stay * *m + go * *d);
                    }
                    (Estimator::Storm { a }, Some(back)) if k > 0 => {
                        let stay = T::of(1.0 - a.at(k).min(1.0));
                        let parts = d[v].iter().zip(back);
                        m.iter_mut().zip(parts).for_each(|(m, (d, b))| *m = stay * (*m - *b) + *d);
                    }
                    _ => m.copy_from_slice(d[v]),
                }
            }
        });
        copy(m, used, threads, |v| wanted(v) && !late(v));
    }
}

/// The same for one variable of stacks on a device.
fn on_device<T: Real>(
    kind: Estimator,
    k: usize,
    v: usize,
    [m, used]: [&mut Stack<T, 3>; 2],
    fresh: &Stack<T, 3>,
    back: Option<&Stack<T, 3>>,
) {
    let late = matches!(kind, Estimator::Momentum { late: true, .. });
    if late {
        used.blend_on_device(v, 0.0, 1.0, (m, v));
    }
    match (kind, back) {
        (Estimator::Momentum { theta, warm, .. }, _) if !(k == 0 && warm) => {
            m.blend_on_device(v, 1.0 - theta, theta, (fresh, v));
        }
        (Estimator::Storm { a }, Some(back)) if k > 0 => {
            m.blend_on_device(v, 1.0, -1.0, (back, v));
            m.blend_on_device(v, 1.0 - a.at(k).min(1.0), 1.0, (fresh, v));
        }
        _ => m.blend_on_device(v, 0.0, 1.0, (fresh, v)),
    }
    if !late {
        used.blend_on_device(v, 0.0, 1.0, (m, v));
    }
}

/// Copies some variables of one stack to another.
fn copy<T: Real>(
    from: &Stack<T, 3>,
    to: &mut Stack<T, 3>,
    threads: &Threads,
    which: impl Fn(usize) -> bool + Sync,
) {
    to.for_each_row(threads, 16, |_, row, to| {
        let from = from.row(row);
        to.into_iter().zip(from).enumerate().filter(|(v, _)| which(*v)).for_each(|(_, (to, from))| {
            to.copy_from_slice(from);
        });
    });
}
