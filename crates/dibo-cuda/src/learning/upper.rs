//! The upper variable on the device: ψ of cleaning, which lies with its agent, or the x of τ in tuning, of
//! which each agent has one number. There is so little of the latter that the host does its part of the
//! arithmetic.
use super::soba::Addresses;
use super::{DeviceLearning, DeviceMemory};
use crate::gpu::arguments;
use crate::rows::DeviceRows;
use dibo::algorithm::direction::{X, Y, Z};
use dibo::problem::learning::{Task, TauForm};
use dibo::rows::{Stack, View};

/// Where it lies.
pub(super) enum UpperRows<'a> {
    /// ψ and its directions, with the regulariser of the model.
    Psi { tau: f64, psi: &'a DeviceRows, dx: &'a DeviceRows },
    /// How τ comes from x, and τ and its slope at each agent's x.
    Tau { form: TauForm, x: Vec<f32>, taus: Vec<(f64, f64)> },
}

impl UpperRows<'_> {
    /// The factor of the model in its gradients that is the same for all agents.
    pub fn weight_decay(&self) -> f64 {
        match self {
            UpperRows::Psi { tau, .. } => *tau,
            UpperRows::Tau { .. } => 0.0,
        }
    }

    /// Where ψ lies, if there is one.
    pub fn psi(&self) -> u64 {
        match self {
            UpperRows::Psi { psi, .. } => psi.at(),
            UpperRows::Tau { .. } => 0,
        }
    }
}

impl DeviceLearning {
    pub(super) fn upper_rows<'a>(&self, v: &'a Stack<f32, 3>, d: &'a Stack<f32, 3>) -> Option<UpperRows<'a>> {
        let private = |stack: &'a Stack<f32, 3>| {
            let rows = self.gpu.require(stack.private.as_ref(), "a stack without ψ in a cleaning problem")?;
            DeviceRows::required(&self.gpu, rows)
        };
        Some(match self.host.task() {
            Task::Cleaning { tau, .. } => UpperRows::Psi { tau, psi: private(v)?, dx: private(d)? },
            Task::Tuning { form, .. } => {
                let x = DeviceRows::required(&self.gpu, &v.shared)?.column(v.cut(X).start);
                let taus = x.iter().map(|x| form.tau(f64::from(*x))).collect();
                UpperRows::Tau { form, x, taus }
            }
        })
    }

    /// What τ‖y‖² adds to directions along these vectors: 2 factor τ of each agent.
    fn regularise(&self, factor: f64, taus: &[(f64, f64)], a: &Addresses, pairs: &[(u64, u64)]) {
        let decays: Vec<f32> = taus.iter().map(|(tau, _)| (2.0 * factor * tau) as f32).collect();
        let decays = DeviceMemory::of(&self.gpu, &decays);
        let (steps, width, stride) = (decays.at(), a.width as i64, a.stride as i64);
        let grid = (self.gpu.blocks(a.width, 256), taus.len() as u32);
        for (to, from) in pairs {
            let (to, from) = (*to, *from);
            self.gpu.rows_kernel("away", grid, 256, arguments![to, to, from, steps, width, stride]);
        }
    }

    /// τ's part of the penalty's directions.
    pub(super) fn penalty_of_tau(
        &self,
        upper: &UpperRows<'_>,
        factor: f64,
        v: &Stack<f32, 3>,
        d: &Stack<f32, 3>,
    ) -> Option<()> {
        let UpperRows::Tau { form, x, taus } = upper else { return Some(()) };
        let a = self.addresses(v, d)?;
        self.regularise(factor, taus, &a, &[(a.dy, a.y), (a.dz, a.z)]);
        let (rows, to) =
            (DeviceRows::required(&self.gpu, &v.shared)?, DeviceRows::required(&self.gpu, &d.shared)?);
        let [y, z] = [Y, Z].map(|variable| rows.square_sums(&v.cut(variable)));
        let of = |i: usize| {
            let direction = factor * taus[i].1 * (y[i] - z[i]);
            // Where x is below 0 an agent never lowers it further.
            let held = *form == TauForm::Projected && x[i] < 0.0;
            (if held { direction.min(0.0) } else { direction }) as f32
        };
        to.set_column(d.cut(X).start, &(0..x.len()).map(of).collect::<Vec<_>>());
        Some(())
    }

    /// τ's part of SOBA's directions.
    pub(super) fn soba_of_tau(
        &self,
        upper: &UpperRows<'_>,
        v: &Stack<f32, 3>,
        d: &Stack<f32, 3>,
    ) -> Option<()> {
        let UpperRows::Tau { taus, .. } = upper else { return Some(()) };
        let a = self.addresses(v, d)?;
        self.regularise(1.0, taus, &a, &[(a.dy, a.y), (a.dz, a.z)]);
        let (rows, to) =
            (DeviceRows::required(&self.gpu, &v.shared)?, DeviceRows::required(&self.gpu, &d.shared)?);
        let dots = rows.dots(&v.cut(Y), v.cut(Z).start);
        let slopes = dots.iter().zip(taus).map(|(dot, (_, slope))| (-2.0 * slope * dot) as f32);
        to.set_column(d.cut(X).start, &slopes.collect::<Vec<_>>());
        Some(())
    }

    /// τ's part of the lower level's gradient.
    pub(super) fn lower_of_tau(&self, upper: &UpperRows<'_>, a: &Addresses) {
        if let UpperRows::Tau { taus, .. } = upper {
            self.regularise(1.0, taus, a, &[(a.dy, a.y)]);
        }
    }

    /// τ of the mean x, and what moves it: the models' squared norms, y's less z's.
    pub(super) fn tuned(
        &self,
        x: &View<'_, f32>,
        y: &DeviceMemory,
        z: Option<&View<'_, f32>>,
    ) -> Vec<(&'static str, f64)> {
        let Task::Tuning { form, .. } = self.host.task() else { return Vec::new() };
        let mut values = Vec::new();
        values.extend(x.mean().map(|x| ("tau", form.tau(x[0]).0)));
        let square = |numbers: &[f64]| numbers.iter().map(|n| n * n).sum::<f64>();
        let mut own = vec![0.0f32; self.host.net().width()];
        y.read(0, &mut own);
        let own: Vec<f64> = own.into_iter().map(f64::from).collect();
        values.extend(z.and_then(View::mean).map(|z| ("norm_gap", square(&own) - square(&z))));
        values
    }
}
