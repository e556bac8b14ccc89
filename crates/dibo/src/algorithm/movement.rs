//! The movement of x, y and z: one mixing rule for all rows where that is possible, so that a round reads
//! them once; else one for each variable.
use super::View;
use super::direction::X;
use super::mixer::Lanes;
use super::part::Part;
use super::spec::Spec;
use super::stacks::{Steps, step_private};
use crate::error::Result;
use crate::network::Network;
use crate::rows::{Real, Rows, Stack};

pub struct Movement<T> {
    parts: Vec<Part<T>>,
    steps: Steps<T, 3>,
}

impl<T: Real> Movement<T> {
    pub fn new(spec: &Spec, v: &Stack<T, 3>, network: &dyn Network<T>) -> Self {
        let parts = match spec.together() {
            true => {
                vec![Part { variable: None, mixer: spec.mixing[X].make(&v.shared, spec.share[X]), own: None }]
            }
            // A private x moves without a rule, and what has no width not at all.
            false => {
                (0..3).filter(|i| !v.cut(*i).is_empty()).map(|i| Part::of(spec, v, i, network)).collect()
            }
        };
        Movement { parts, steps: Steps::default() }
    }

    /// Hears that these variables have new directions.
    pub fn renewed(&mut self, only: Option<usize>) {
        self.parts.iter_mut().filter(|p| p.moves(only)).for_each(|p| p.mixer.renewed());
    }

    /// Hears that somebody else has written to v.
    pub fn written(&mut self) {
        self.parts.iter_mut().for_each(Part::written);
    }

    /// v⁺ by the mixing rules along d, in as many rounds as the longest of them has.
    pub fn go(
        &mut self,
        k: usize,
        only: Option<usize>,
        eta: [f64; 3],
        v: &mut Stack<T, 3>,
        d: &Stack<T, 3>,
        network: &mut dyn Network<T>,
    ) -> Result<()> {
        self.steps.set(v, eta);
        if only.is_none_or(|only| only == X) {
            step_private(v, eta[X], d, network);
        }
        let (parts, columns) = (&mut self.parts, &self.steps.columns);
        let moving = || move |p: &&mut Part<T>| p.moves(only);
        parts.iter_mut().filter(moving()).for_each(|p| p.gather(&v.shared, &d.shared, eta));
        let rounds = parts.iter().filter(|p| p.moves(only)).map(|p| p.mixer.phases(k).len()).max();
        for round in 0..rounds.unwrap_or(0) {
            for part in parts.iter_mut().filter(moving()) {
                let Some(phase) = part.mixer.phases(k).nth(round) else { continue };
                let (mixer, step) = part.step(&mut v.shared, &d.shared, columns, network.threads());
                mixer.before(phase, step);
            }
            let mut lanes = Lanes::new();
            // Either one part has all rows, or each has its own.
            let mut whole = Some(&mut v.shared);
            for part in parts.iter_mut().filter(moving()) {
                let Some(phase) = part.mixer.phases(k).nth(round) else { continue };
                match (&mut part.own, &mut whole) {
                    (Some(own), _) => part.mixer.send(phase, &mut own.v, &own.d, &own.eta, &mut lanes),
                    (None, whole) => {
                        if let Some(v) = whole.take() {
                            part.mixer.send(phase, v, &d.shared, columns, &mut lanes);
                        }
                    }
                }
            }
            network.round(network.next_round(), lanes.all())?;
            for part in parts.iter_mut().filter(moving()) {
                let Some(phase) = part.mixer.phases(k).nth(round) else { continue };
                let (mixer, step) = part.step(&mut v.shared, &d.shared, columns, network.threads());
                mixer.after(phase, step);
            }
        }
        parts.iter_mut().filter(moving()).for_each(|p| p.scatter(&mut v.shared));
        Ok(())
    }

    /// Trackers and push-sum's weight.
    pub fn views(&mut self, d: &Stack<T, 3>) -> Vec<View<'_, T>> {
        let names = ["tx", "ty", "tz"];
        let mut all = Vec::new();
        for (number, part) in self.parts.iter_mut().enumerate() {
            part.settle(&d.shared);
            let Part { variable, mixer, .. } = part;
            match (mixer.tracker(), variable) {
                (Some(t), Some(v)) => all.push(View::whole(names[*v], t)),
                (Some(t), None) => {
                    let view = |v: usize| View { name: names[v], rows: t, columns: Some(d.cut(v)) };
                    all.extend((0..3).map(view));
                }
                (None, _) => {}
            }
            // All weights are equal.
            all.extend(mixer.weight().filter(|_| number == 0).map(|w| View::whole("w", w)));
        }
        all
    }

    /// Whoever asks for it may write to it, and to v.
    pub fn memory(&mut self, d: &Stack<T, 3>) -> Vec<&mut Rows<T>> {
        self.written();
        let mut all = Vec::new();
        for part in &mut self.parts {
            // What is still to be added is added first, here and in the run that resumes.
            part.settle(&d.shared);
            all.extend(part.mixer.memory());
        }
        all
    }
}
