//! A problem of your own: many agents tune the ridge penalty of every feature together, each with private
//! training and validation data.
//!
//! Lower level, agent i: g_i(x, w) = 1/(2m) ‖T_i w − t_i‖² + ½ Σ_c e^{x_c} w_c². Upper level: f_i(x, w) =
//! 1/(2m) ‖V_i w − v_i‖². Run it with `cargo run --release --example own_problem`.
use dibo::algorithm::fab::Fab;
use dibo::problem::{Bilevel, Start};
use dibo::rng::{Purpose, stream};
use dibo::rows::Upper;
use dibo::{Result, Run};
use rand::RngExt;

/// Samples (features, target) of every agent.
type Samples = Vec<Vec<(Vec<f64>, f64)>>;

/// What the agents know.
pub struct Ridge {
    train: Samples,
    validation: Samples,
}

/// Writes the gradient of 1/(2m) Σ (row·w − target)².
fn least_squares(samples: &[(Vec<f64>, f64)], w: &[f64], gradient: &mut [f64]) {
    gradient.fill(0.0);
    for (row, target) in samples {
        let residual = row.iter().zip(w).map(|(r, w)| r * w).sum::<f64>() - target;
        gradient.iter_mut().zip(row).for_each(|(g, r)| *g += residual * r / samples.len() as f64);
    }
}

impl Bilevel<f64> for Ridge {
    fn agents(&self) -> usize {
        self.train.len()
    }

    fn upper(&self) -> Upper {
        Upper::Shared(self.lower()) // one penalty a feature, the same for all agents
    }

    fn lower(&self) -> usize {
        self.train[0][0].0.len()
    }

    fn grad_f(
        &self,
        agent: usize,
        _k: usize,
        _x: &[f64],
        w: &[f64],
        gx: &mut [f64],
        gw: &mut [f64],
    ) -> Result<()> {
        gx.fill(0.0);
        least_squares(&self.validation[agent], w, gw);
        Ok(())
    }

    fn grad_g(
        &self,
        agent: usize,
        _k: usize,
        x: &[f64],
        w: &[f64],
        gx: &mut [f64],
        gw: &mut [f64],
    ) -> Result<()> {
        least_squares(&self.train[agent], w, gw);
        for c in 0..x.len() {
            gx[c] = 0.5 * x[c].exp() * w[c] * w[c];
            gw[c] += x[c].exp() * w[c];
        }
        Ok(())
    }
}

impl Ridge {
    /// Targets that depend on the first half of the features only, with noise.
    pub fn random(agents: usize, features: usize, samples: usize) -> Self {
        let draw = |purpose_of: u64| -> Samples {
            let agent = |i: usize| {
                let mut r = stream(purpose_of, Purpose::Instance, i as u64, 0);
                let mut sample = || {
                    let row: Vec<f64> = (0..features).map(|_| r.random_range(-1.0..1.0)).collect();
                    let target = row[..features / 2].iter().sum::<f64>() + r.random_range(-1.0..1.0);
                    (row, target)
                };
                (0..samples).map(|_| sample()).collect()
            };
            (0..agents).map(agent).collect()
        };
        Ridge { train: draw(1), validation: draw(2) }
    }

    /// The mean validation loss of a model.
    pub fn loss(&self, w: &[f64]) -> f64 {
        let square = |(row, target): &(Vec<f64>, f64)| {
            (row.iter().zip(w).map(|(r, w)| r * w).sum::<f64>() - target).powi(2) / 2.0
        };
        let all: Vec<f64> = self.validation.iter().flatten().map(square).collect();
        all.iter().sum::<f64>() / all.len() as f64
    }
}

/// FAB over the paper's changing graphs: x (the log-penalties) and the model w.
pub fn solve(problem: &Ridge, iterations: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let fab = Fab { lambda: 20.0.into(), eta_x: 2.0.into(), ..Fab::normalised(0.3) };
    let start = Start { x: vec![vec![-2.0; problem.lower()]], ..Start::default() };
    let end = Run::new(problem, &fab).start(&start).iterations(iterations).run()?;
    Ok((end.mean("x").unwrap_or_default(), end.mean("y").unwrap_or_default()))
}

#[allow(dead_code)] // a test includes this file and calls `solve`
fn main() -> Result<()> {
    let problem = Ridge::random(8, 6, 12);
    let (x, w) = solve(&problem, 4000)?;
    println!("penalties {:.3?}", x.iter().map(|x| x.exp()).collect::<Vec<_>>());
    println!("model     {w:.3?}");
    println!("validation loss {:.4}", problem.loss(&w));
    Ok(())
}
