//! A problem that others hold, too.
use super::{At, Bilevel, ClosedForms, Constants, Metric, Penalty, SecondOrder, SingleLevel, Start, Values};
use crate::error::Result;
use crate::rows::{Real, Stack, Upper, View};
use std::sync::Arc;

impl<T: Real, P: Bilevel<T> + ?Sized> Bilevel<T> for Arc<P> {
    fn agents(&self) -> usize {
        (**self).agents()
    }

    fn upper(&self) -> Upper {
        (**self).upper()
    }

    fn lower(&self) -> usize {
        (**self).lower()
    }

    fn grad_f(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        (**self).grad_f(agent, k, x, y, gx, gy)
    }

    fn grad_g(&self, agent: usize, k: usize, x: &[T], y: &[T], gx: &mut [T], gy: &mut [T]) -> Result<()> {
        (**self).grad_g(agent, k, x, y, gx, gy)
    }

    fn penalty_directions(
        &self,
        at: At<'_>,
        penalty: Penalty,
        v: &Stack<T, 3>,
        d: &mut Stack<T, 3>,
    ) -> Result<()> {
        (**self).penalty_directions(at, penalty, v, d)
    }

    fn second_order(&self) -> Option<&dyn SecondOrder<T>> {
        (**self).second_order()
    }

    fn single_level(&self) -> Option<&dyn SingleLevel<T>> {
        (**self).single_level()
    }

    fn constants(&self) -> Option<Constants> {
        (**self).constants()
    }

    fn closed_forms(&self) -> Option<&dyn ClosedForms> {
        (**self).closed_forms()
    }

    fn start(&self) -> Start {
        (**self).start()
    }

    fn measures(&self) -> Vec<Metric> {
        (**self).measures()
    }

    fn metrics(&self, x: &[f64], y: Option<&[f64]>) -> Result<Values> {
        (**self).metrics(x, y)
    }

    fn own_sums(&self, agents: &[usize], views: &[View<'_, T>]) -> Result<Option<Vec<Vec<f64>>>> {
        (**self).own_sums(agents, views)
    }

    fn metrics_of_sums(&self, sums: &[f64]) -> Values {
        (**self).metrics_of_sums(sums)
    }

    fn state_metrics(&self, views: &[View<'_, T>]) -> Result<Values> {
        (**self).state_metrics(views)
    }
}
