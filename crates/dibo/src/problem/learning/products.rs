//! Products with second derivatives of g, by Pearlmutter's rule: the derivative of the forward and backward
//! pass along a direction of the parameters, at about twice the cost of a gradient.
use super::model::{Scratch, pieces};
use super::{Batch, Learning, Model, Net, Task, TauForm};
use crate::error::Result;
use crate::kernels::{add_scaled, mask, product};
use crate::problem::{Bilevel, SecondOrder, difference_product};
use crate::rows::{Real, zeros};

impl Net {
    /// The derivative of the scores along `v`, after [`forward`](Self::forward) with the same rows and `w`:
    /// r_out = ∂(scores)·v, and of the hidden values.
    fn forward_along<T: Real>(&self, s: &mut Scratch<T>, rows: usize, w: &[T], v: &[T]) {
        let (sx, sh, so) = self.strides();
        if s.r_out.len() < s.out.len() {
            (s.r_out, s.r_hidden) = (zeros(s.out.len()), zeros(s.hidden.len()));
        }
        let Some(h) = self.hidden() else {
            let n = self.inputs();
            return product((rows, self.classes, n), (&mut s.r_out, so, 1), false, (&s.x, sx, 1), (v, 1, n));
        };
        let (first, second) = v.split_at(self.inputs() * h);
        let n = self.inputs();
        product((rows, h, n), (&mut s.r_hidden, sh, 1), false, (&s.x, sx, 1), (first, h, 1));
        let masks = s.hidden.chunks_exact(sh).take(rows);
        s.r_hidden.chunks_exact_mut(sh).zip(masks).for_each(|(r, hidden)| mask(&mut r[..h], &hidden[..h]));
        let (out, c) = (&mut s.r_out, self.classes);
        product((rows, c, h + 1), (out, so, 1), false, (&s.hidden, sh, 1), (second, 1, h + 1));
        let second = &w[n * h..];
        product((rows, c, h), (out, so, 1), true, (&s.r_hidden, sh, 1), (second, 1, h + 1));
    }

    /// From the derivative of the scores to that of weight · (probability − 1 at the label), in its place;
    /// `slope` gets the derivative of each row's cross-entropy. Before [`entropy`](Self::entropy).
    fn entropy_along<T: Real>(&self, s: &mut Scratch<T>, rows: usize, mut slope: impl FnMut(usize, f64)) {
        let (so, mut p) = (self.strides().2, [0.0; 256]);
        for r in 0..rows {
            self.probabilities(s, r, &mut p[..self.classes]);
            let row = &mut s.r_out[r * so..][..self.classes];
            let mean: f64 = p.iter().zip(&*row).map(|(p, r)| p * r.f64()).sum();
            slope(r, mean - row[s.labels[r] as usize].f64());
            let weight = s.weights[r];
            row.iter_mut().zip(&p).for_each(|(r, p)| *r = T::of(weight * p * (r.f64() - mean)));
        }
    }

    /// The derivative of the gradient, after the passes above and [`entropy`](Self::entropy).
    fn backward_along<T: Real>(
        &self,
        s: &mut Scratch<T>,
        rows: usize,
        (w, v): (&[T], &[T]),
        g: &mut [T],
        add: bool,
    ) {
        let (sx, sh, so) = self.strides();
        let (n, c) = (self.inputs(), self.classes);
        let Some(h) = self.hidden() else {
            return product((n, c, rows), (g, 1, n), add, (&s.x, 1, sx), (&s.r_out, so, 1));
        };
        let (w2, v2, (g1, g2)) = (&w[n * h..], &v[n * h..], g.split_at_mut(n * h));
        product((c, h + 1, rows), (g2, h + 1, 1), add, (&s.r_out, 1, so), (&s.hidden, sh, 1));
        product((c, h, rows), (g2, h + 1, 1), true, (&s.out, 1, so), (&s.r_hidden, sh, 1));
        product((rows, h, c), (&mut s.back, sh, 1), false, (&s.r_out, so, 1), (w2, h + 1, 1));
        product((rows, h, c), (&mut s.back, sh, 1), true, (&s.out, so, 1), (v2, h + 1, 1));
        let masks = s.hidden.chunks_exact(sh).take(rows);
        s.back.chunks_exact_mut(sh).zip(masks).for_each(|(back, hidden)| mask(&mut back[..h], &hidden[..h]));
        product((n, h, rows), (g1, h, 1), add, (&s.x, 1, sx), (&s.back, sh, 1));
    }
}

impl<T: Real> Learning<T> {
    /// The training batch of iteration k through the passes along `v`: `g` gets the product with the
    /// Hessian of Σ weight · cross-entropy, if it is there; `slope` each place with its cross-entropy's
    /// derivative.
    fn along(
        &self,
        agent: usize,
        k: usize,
        [x, w, v]: [&[T]; 3],
        mut g: Option<&mut [T]>,
        mut slope: impl FnMut(usize, f64),
    ) {
        let batch: Batch<'_> = self.window(&self.orders[agent].train, k);
        let each = 1.0 / batch.len as f64;
        self.with_scratch(|s| {
            for piece in pieces(batch.len, s.rows()) {
                let (rows, place) = (piece.len(), |j: usize| batch.place(j));
                self.load(s, agent, piece.clone(), place, |j| each * self.weight(x, place(j)));
                self.net.forward(s, rows, w);
                self.net.forward_along(s, rows, w, v);
                self.net.entropy_along(s, rows, |r, d| slope(place(piece.start + r), d));
                if let Some(g) = g.as_deref_mut() {
                    self.net.entropy(s, rows);
                    self.net.backward_along(s, rows, (w, v), g, piece.start > 0);
                }
            }
        });
    }
}

impl<T: Real> SecondOrder<T> for Learning<T> {
    fn yy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        if matches!(self.net.model, Model::Bert(_)) {
            return difference_product(self as &dyn Bilevel<T>, agent, k, [x, y, v], out, false);
        }
        self.along(agent, k, [x, y, v], Some(&mut *out), |_, _| {});
        add_scaled(out, T::of(self.weight_decay(x)), v);
        Ok(())
    }

    fn xy(&self, agent: usize, k: usize, x: &[T], y: &[T], v: &[T], out: &mut [T]) -> Result<()> {
        out.fill(T::ZERO);
        match self.task {
            Task::Tuning { form, .. } => out[0] = T::of(2.0 * slope_of_tau(form, x) * dot(y, v)),
            Task::Cleaning { .. } if matches!(self.net.model, Model::Bert(_)) => {
                return difference_product(self as &dyn Bilevel<T>, agent, k, [x, y, v], out, true);
            }
            Task::Cleaning { .. } => {
                let each = 1.0 / self.window(&self.orders[agent].train, k).len as f64;
                self.along(agent, k, [x, y, v], None, |place, d| {
                    let weight = self.weight(x, place);
                    out[place] = T::of(each * weight * (1.0 - weight) * d);
                });
            }
        }
        Ok(())
    }
}

fn slope_of_tau<T: Real>(form: TauForm, x: &[T]) -> f64 {
    form.tau(x[0].f64()).1
}

fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.f64() * b.f64()).sum()
}
