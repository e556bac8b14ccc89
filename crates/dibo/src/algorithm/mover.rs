//! One variable that moves by a mixing rule: what single-level methods and inner loops are made of.
use super::mixer::{Lanes, Mix, Mixer, Step};
use super::stacks::{Steps, like, step_private};
use super::{View, memory, views};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack, Threads};

/// v and the direction d it moves along.
pub struct Mover<T> {
    pub v: Stack<T, 1>,
    pub d: Stack<T, 1>,
    mixer: Box<dyn Mixer<T>>,
    steps: Steps<T, 1>,
}

impl<T: Real> Mover<T> {
    pub fn new(mix: Mix, share: f64, v: Stack<T, 1>) -> Self {
        Mover { mixer: mix.make(&v.shared, share), d: like(&v), v, steps: Steps::default() }
    }

    /// Says that d is new.
    pub fn renewed(&mut self) {
        self.mixer.renewed();
    }

    /// Moves v along d, over the links of the network's next rounds.
    pub fn go(&mut self, k: usize, eta: f64, network: &mut dyn Network<T>) -> Result<()> {
        let Self { v, d, mixer, steps } = self;
        steps.set(v, [eta]);
        step_private(v, eta, d, network);
        for phase in mixer.phases(k) {
            let threads = network.threads();
            mixer.before(phase, Step { v: &mut v.shared, m: &d.shared, eta: &steps.columns, threads });
            let mut lanes = Lanes::new();
            mixer.send(phase, &mut v.shared, &d.shared, &steps.columns, &mut lanes);
            network.round(network.next_round(), lanes.all())?;
            let threads = network.threads();
            mixer.after(phase, Step { v: &mut v.shared, m: &d.shared, eta: &steps.columns, threads });
        }
        Ok(())
    }

    /// Begins anew where v is now.
    pub fn restart(&mut self) {
        self.mixer.restart(&self.v.shared);
    }

    /// Push-sum's weight.
    pub fn weight(&self) -> Option<&Rows<T>> {
        self.mixer.weight()
    }

    pub fn views(&mut self, [v, t, d]: [&'static str; 3]) -> Vec<View<'_, T>> {
        self.mixer.settle(&self.d.shared, &Threads::one());
        let mut all: Vec<_> = views(&self.v, [v]).chain(views(&self.d, [d])).collect();
        if self.v.private.is_none() {
            all.extend(self.mixer.tracker().map(|rows| View::whole(t, rows)));
        }
        all.extend(self.mixer.weight().map(|w| View::whole("w", w)));
        all
    }

    pub fn memory(&mut self) -> Vec<&mut Rows<T>> {
        let Self { v, d, mixer, .. } = self;
        mixer.settle(&d.shared, &Threads::one());
        mixer.memory().into_iter().chain(memory(v)).chain(memory(d)).collect()
    }
}
