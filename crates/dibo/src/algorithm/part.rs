//! Variables that move by one mixing rule: all of a stack, or one, in rows of its own.
use super::mixer::{Mixer, Step};
use super::spec::Spec;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack, Threads};
use std::ops::Range;

/// Some variables that move by one rule.
pub struct Part<T> {
    pub variable: Option<usize>,
    pub mixer: Box<dyn Mixer<T>>,
    /// Copies of one variable's columns of v and d; all variables need none.
    pub own: Option<Own<T>>,
}

/// One variable's columns, with its steps.
pub struct Own<T> {
    columns: Range<usize>,
    pub v: Rows<T>,
    pub d: Rows<T>,
    pub eta: Vec<T>,
    /// Whether v is what the stack has.
    current: bool,
}

impl<T: Real> Part<T> {
    pub fn of(spec: &Spec, v: &Stack<T, 3>, variable: usize, network: &dyn Network<T>) -> Self {
        let columns = v.cut(variable);
        let mut rows = Rows::zeros(v.count(), columns.len());
        network.place(&mut rows, &[columns.len()]);
        take(&v.shared, &mut rows, columns.clone());
        let mixer = spec.mixing[variable].make(&rows, spec.share[variable]);
        let own = Own { columns, d: rows.clone(), v: rows, eta: Vec::new(), current: true };
        Part { variable: Some(variable), mixer, own: Some(own) }
    }

    pub fn moves(&self, only: Option<usize>) -> bool {
        only.is_none() || self.variable.is_none() || self.variable == only
    }

    pub fn step<'a>(
        &'a mut self,
        v: &'a mut Rows<T>,
        d: &'a Rows<T>,
        eta: &'a [T],
        threads: &'a Threads,
    ) -> (&'a mut dyn Mixer<T>, Step<'a, T>) {
        let step = match &mut self.own {
            Some(own) => Step { v: &mut own.v, m: &own.d, eta: &own.eta, threads },
            None => Step { v, m: d, eta, threads },
        };
        (&mut *self.mixer, step)
    }

    /// Brings the tracker up to the newest directions.
    pub fn settle(&mut self, d: &Rows<T>) {
        match &mut self.own {
            Some(own) => {
                take(d, &mut own.d, own.columns.clone());
                self.mixer.settle(&own.d, &Threads::one());
            }
            None => self.mixer.settle(d, &Threads::one()),
        }
    }

    pub fn gather(&mut self, v: &Rows<T>, d: &Rows<T>, eta: [f64; 3]) {
        if let (Some(own), Some(variable)) = (&mut self.own, self.variable) {
            if !own.current {
                take(v, &mut own.v, own.columns.clone());
            }
            take(d, &mut own.d, own.columns.clone());
            let eta = T::of(eta[variable]);
            if own.eta.first() != Some(&eta) {
                own.eta.clear();
                // A device wants one step a variable.
                own.eta.resize(if own.v.device().is_some() { 1 } else { own.v.stride() }, eta);
            }
        }
    }

    pub fn scatter(&mut self, v: &mut Rows<T>) {
        if let Some(own) = &mut self.own {
            v.copy_columns(own.columns.clone(), &own.v, 0);
            own.current = true;
        }
    }

    /// Hears that somebody else has written to the stack.
    pub fn written(&mut self) {
        self.own.iter_mut().for_each(|own| own.current = false);
    }
}

/// Some columns of rows, to rows of their own.
fn take<T: Real>(from: &Rows<T>, to: &mut Rows<T>, columns: Range<usize>) {
    to.copy_columns(0..columns.len(), from, columns.start);
}
