//! A single-loop method as a cell of three short lists: where directions are taken (sweep), what they are
//! (direction), how noise is treated (estimator), and how each variable then moves over the network (mixing).
use super::afar::Afar;
use super::direction::{Direction, X, Y, Z};
use super::estimator::Estimates;
use super::movement::Movement;
pub use super::spec::{Recipe, Spec, Sweep};
use super::stacks::{like, pairs, zeros};
use super::{Algorithm, State, View, Workspaces, at, fill, memory, own_start, views};
use crate::error::{Error, Result};
use crate::network::Network;
use crate::problem::{Bilevel, Start};
use crate::rows::{Real, Rows, Stack};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A method that is a cell.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cell<R>(pub R);

/// x, y, z, the directions they move along, and the memory of estimators and mixing rules.
struct CellState<T> {
    spec: Spec,
    rule: Box<dyn Direction<T>>,
    v: Stack<T, 3>,
    d: Stack<T, 3>,
    estimates: Option<Estimates<T>>,
    /// For STORM, the points where directions were last taken: one for all variables or one for each.
    points: Vec<Stack<T, 3>>,
    movement: Movement<T>,
    workspaces: Workspaces<T>,
}

impl<T: Real, R: Recipe> Algorithm<T> for Cell<R> {
    fn start(
        &self,
        problem: &dyn Bilevel<T>,
        network: &mut dyn Network<T>,
        start: Option<&Start>,
    ) -> Result<Box<dyn State<T>>> {
        let (spec, start) = (self.0.spec().map_err(Error::Invalid)?, own_start(problem, start));
        let z = if spec.direction.has_z() { problem.lower() } else { 0 };
        let mut v: Stack<T, 3> = zeros(&problem.upper(), &[problem.lower(), z], network.owned());
        let empty = Vec::new();
        let start_z = if z > 0 { spec.direction.start_of_z(&start) } else { &empty };
        fill(network, &mut v, [&start.x, &start.y, start_z]);
        let estimates = Estimates::new(spec.estimator, &v);
        let looks_back = estimates.as_ref().is_some_and(|e| e.back.is_some());
        let points = if spec.sweep == Sweep::Sequential { 3 } else { 1 };
        let afar = Afar::new(problem, network, v.on_device() && spec.direction.is_a_series());
        let mut state = CellState {
            rule: spec.direction.make(),
            movement: Movement::new(&spec, &v, network),
            points: vec![v.clone(); if looks_back { points } else { 0 }],
            workspaces: Workspaces::new(network.threads().count()).and(afar),
            spec,
            d: like(&v),
            v,
            estimates,
        };
        if state.spec.sweep == Sweep::Simultaneous {
            state.look(0, None, problem, network)?;
        }
        Ok(Box::new(state))
    }
}

impl<T: Real> CellState<T> {
    /// Directions at the present point with sample k, and what the estimators make of them.
    fn look(
        &mut self,
        k: usize,
        only: Option<usize>,
        problem: &dyn Bilevel<T>,
        network: &dyn Network<T>,
    ) -> Result<()> {
        let Self { rule, v, d, estimates, points, movement, workspaces, .. } = self;
        movement.renewed(only);
        rule.of_all(problem, at(k, network), only, v, d, workspaces)?;
        let estimated = estimates.as_mut().filter(|e| !only.is_some_and(|only| e.plain(only)));
        let Some(e) = estimated else { return Ok(()) };
        if let Some(back) = &mut e.back {
            let point = &mut points[only.unwrap_or(0)];
            if k > 0 {
                rule.of_all(problem, at(k, network), only, point, back, workspaces)?;
            }
            pairs(point, v).for_each(|(to, from)| to.copy_from(from));
        }
        e.take(k, only, d, network.threads());
        Ok(())
    }

    /// Moves variables along their directions.
    fn go(&mut self, k: usize, only: Option<usize>, network: &mut dyn Network<T>) -> Result<()> {
        self.movement.go(k, only, self.spec.eta(k), &mut self.v, &self.d, network)?;
        if let Some(radius) = self.spec.radius_z.filter(|_| only.is_none_or(|only| only == Z)) {
            self.v.keep_in_ball(Z, radius, network.threads());
            self.movement.written();
        }
        Ok(())
    }
}

impl<T: Real> State<T> for CellState<T> {
    fn step(&mut self, k: usize, problem: &dyn Bilevel<T>, network: &mut dyn Network<T>) -> Result<()> {
        match self.spec.sweep {
            // The directions at the new point end the step, as trackers and whoever looks at them want it.
            Sweep::Simultaneous => {
                self.go(k, None, network)?;
                self.look(k + 1, None, problem, network)
            }
            Sweep::Sequential => {
                for variable in self.spec.direction.order() {
                    self.look(k, Some(*variable), problem, network)?;
                    self.go(k, Some(*variable), network)?;
                }
                Ok(())
            }
        }
    }

    fn views(&mut self) -> Vec<View<'_, T>> {
        let (has_z, shared_x) = (self.spec.direction.has_z(), self.v.private.is_none());
        let there = |v: usize| v == Y || v == X || v == Z && has_z;
        let name = |view: &View<'_, T>, all: [&str; 3]| all.iter().position(|n| *n == view.name);
        let (decisions, directions) = (["x", "y", "z"], ["dx", "dy", "dz"]);
        let mut all: Vec<_> = views(&self.v, decisions)
            .filter(|view| name(view, decisions).is_some_and(there))
            .chain(views(&self.d, directions).filter(|view| name(view, directions).is_some_and(there)))
            .collect();
        // In a sequential sweep no tracker belongs to the directions that are shown.
        let simultaneous = self.spec.sweep == Sweep::Simultaneous;
        all.extend(self.movement.views(&self.d).into_iter().filter(|view| match view.name {
            "w" => true,
            "tx" => simultaneous && shared_x,
            "tz" => simultaneous && has_z,
            _ => simultaneous,
        }));
        all
    }

    fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let Self { v, d, estimates, points, movement, .. } = self;
        let mut all = movement.memory(d);
        all.extend(memory(v).chain(memory(d)));
        all.extend(estimates.iter_mut().flat_map(|e| memory(&mut e.m)));
        all.extend(points.iter_mut().flat_map(memory));
        all
    }
}
