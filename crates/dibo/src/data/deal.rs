//! Dealing samples to agents: partition, split into training and validation, wrong labels with the truth
//! kept.
use super::Dataset;
use crate::rng::{Purpose, stream};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Gamma};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Who gets which sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partition {
    /// Shuffled and cut into equal parts (sizes differ by one at most).
    Uniform,
    /// Each class is shared out in proportions drawn from Dirichlet(ρ, …, ρ): small ρ, unlike agents. An
    /// agent left with fewer than ten samples (or than an equal part) is filled up from the largest one.
    Dirichlet(f64),
}

/// What of an agent's samples is for training and what for validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// This part for training, the rest for validation; at least one sample each.
    Share(f64),
    /// So many for training and so many for validation; what is left over is not used.
    Counts {
        /// Training samples an agent.
        train: usize,
        /// Validation samples an agent.
        validation: usize,
    },
}

/// How a training label goes wrong. Each sample is hit with probability `cr`, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// The paper's map 0→6, 1→3, 2→4, 3→1, 4→2, 5→7, 6→0, 7→5, 8→9, 9→8 (ten classes).
    Asymmetric,
    /// The next label, and 0 after the last.
    Cyclic,
    /// Another label, each with the same probability.
    Uniform,
    /// Any label, each with the same probability: it may be the true one, and is then not counted as wrong.
    Redraw,
}

/// The paper's map of labels.
const ASYMMETRIC: [u8; 10] = [6, 3, 4, 1, 2, 7, 0, 5, 9, 8];

/// How data is dealt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Number of agents.
    pub agents: usize,
    /// Who gets which sample.
    pub partition: Partition,
    /// Training and validation.
    pub split: Split,
    /// How labels go wrong.
    pub noise: Noise,
    /// Probability that a training label is hit.
    pub cr: f64,
    /// Seed of all three choices.
    pub seed: u64,
}

/// One agent's samples, as numbers of the data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hand {
    /// Training samples.
    pub train: Vec<u32>,
    /// Their labels as the agent sees them.
    pub given: Vec<u8>,
    /// Which of these labels are wrong: only the metrics may look at it.
    pub wrong: Vec<bool>,
    /// Validation samples; their labels are always the true ones.
    pub validation: Vec<u32>,
}

/// Data dealt to agents, with the test set.
#[derive(Clone, Debug)]
pub struct Dealt {
    /// Training data of all agents.
    pub data: Arc<Dataset>,
    /// Test data.
    pub test: Arc<Dataset>,
    /// What each agent has.
    pub hands: Vec<Hand>,
}

impl Recipe {
    /// Deals; says what is wrong if a number is out of range or there are too few samples.
    pub fn deal(&self, data: Arc<Dataset>, test: Arc<Dataset>) -> Result<Dealt, String> {
        if !(0.0..=1.0).contains(&self.cr) {
            return Err(format!("cr is {}; it must lie in [0, 1]", self.cr));
        }
        if (data.pixels(), data.classes()) != (test.pixels(), test.classes()) {
            return Err(format!(
                "training images have {} pixels and test images {}",
                data.pixels(),
                test.pixels()
            ));
        }
        if self.noise == Noise::Asymmetric && data.classes() != ASYMMETRIC.len() {
            return Err(format!("asymmetric noise is a map of ten labels; the data has {}", data.classes()));
        }
        let parts = self.partition.deal(data.labels(), data.classes(), self.agents, self.seed)?;
        let mut hands = Vec::with_capacity(self.agents);
        for (agent, part) in parts.into_iter().enumerate() {
            let (train, validation) = self.split.cut(part, agent, self.seed)?;
            let mut r = stream(self.seed, Purpose::Labels, agent as u64, 0);
            let truth: Vec<u8> = train.iter().map(|i| data.labels()[*i as usize]).collect();
            let given: Vec<u8> =
                truth.iter().map(|l| self.noise.label(*l, data.classes(), self.cr, &mut r)).collect();
            let wrong = truth.iter().zip(&given).map(|(t, g)| t != g).collect();
            hands.push(Hand { train, given, wrong, validation });
        }
        Ok(Dealt { data, test, hands })
    }
}

impl Dealt {
    /// Bytes of the images and labels.
    pub fn bytes(&self) -> usize {
        self.data.bytes() + self.test.bytes()
    }

    /// The same with a copy of the images in use, agent by agent in the order of their hands: less memory if
    /// many are not in use, and faster to read.
    pub fn compact(mut self) -> Self {
        let used: Vec<u32> =
            self.hands.iter().flat_map(|h| h.train.iter().chain(&h.validation)).copied().collect();
        self.data = Arc::new(self.data.subset(&used));
        let mut next = 0..;
        for place in self.hands.iter_mut().flat_map(|h| h.train.iter_mut().chain(&mut h.validation)) {
            *place = next.next().expect("without end");
        }
        self
    }
}

impl Partition {
    /// The samples of each agent.
    pub fn deal(
        self,
        labels: &[u8],
        classes: usize,
        agents: usize,
        seed: u64,
    ) -> Result<Vec<Vec<u32>>, String> {
        if agents == 0 || labels.len() < 2 * agents {
            return Err(format!("{} samples for {agents} agents; each agent needs 2 or more", labels.len()));
        }
        let mut r = stream(seed, Purpose::Partition, 0, 0);
        let cut = |of: &[u32], i: usize| of.len() * i / agents;
        let rho = match self {
            Partition::Uniform => {
                let mut all: Vec<u32> = (0..labels.len() as u32).collect();
                all.shuffle(&mut r);
                return Ok((0..agents).map(|i| all[cut(&all, i)..cut(&all, i + 1)].to_vec()).collect());
            }
            Partition::Dirichlet(rho) => rho,
        };
        let gamma = Gamma::new(rho, 1.0)
            .ok()
            .filter(|_| rho.is_finite())
            .ok_or(format!("rho is {rho}; it must be above 0"))?;
        let mut parts = vec![Vec::new(); agents];
        for class in 0..classes {
            let mut of: Vec<u32> =
                (0..labels.len() as u32).filter(|i| labels[*i as usize] as usize == class).collect();
            of.shuffle(&mut r);
            let mut draws: Vec<f64> = (0..agents).map(|_| gamma.sample(&mut r)).collect();
            let mut sum: f64 = draws.iter().sum();
            // For tiny rho all draws may round to zero: the limit is that one agent gets the class.
            if sum.is_nan() || sum <= 0.0 {
                draws[r.random_range(0..agents)] = 1.0;
                sum = 1.0;
            }
            let (mut before, mut from) = (0.0, 0);
            for (agent, draw) in draws.iter().enumerate() {
                before += draw;
                let to = if agent + 1 == agents {
                    of.len()
                } else {
                    (before / sum * of.len() as f64).round() as usize
                };
                parts[agent].extend(&of[from..to.clamp(from, of.len())]);
                from = to.clamp(from, of.len());
            }
        }
        // Mixed within an agent, so that what is taken from the end (here, or by `Split::Counts`) is of all
        // its classes.
        parts.iter_mut().for_each(|part| part.shuffle(&mut r));
        let least = (labels.len() / agents).min(10);
        while let Some(poor) = parts.iter().position(|p| p.len() < least) {
            let rich = (0..agents).max_by_key(|i| parts[*i].len()).expect("there are agents");
            let sample = parts[rich].pop().expect("the largest part holds more than an equal share");
            parts[poor].push(sample);
        }
        Ok(parts)
    }
}

impl Split {
    /// Training and validation samples of one agent.
    pub fn cut(self, mut samples: Vec<u32>, agent: usize, seed: u64) -> Result<(Vec<u32>, Vec<u32>), String> {
        samples.shuffle(&mut stream(seed, Purpose::Split, agent as u64, 0));
        let have = samples.len();
        let (train, validation) = match self {
            Split::Share(share) if share > 0.0 && share < 1.0 && have >= 2 => {
                let train = ((have as f64 * share).round() as usize).clamp(1, have - 1);
                (train, have - train)
            }
            Split::Share(share) => {
                return Err(format!(
                    "split is {share} of {have} samples; it must lie between 0 and 1, of 2 or more"
                ));
            }
            Split::Counts { train, validation } => (train, validation),
        };
        if train == 0 || validation == 0 || train + validation > have {
            return Err(format!(
                "agent {agent} has {have} samples; {train} for training and {validation} for validation are \
                asked for"
            ));
        }
        let rest = samples.split_off(train);
        Ok((samples, rest[..validation].to_vec()))
    }
}

impl Noise {
    /// The label an agent sees where `truth` is the true one.
    pub fn label(self, truth: u8, classes: usize, cr: f64, r: &mut impl Rng) -> u8 {
        // Two draws whether or not the label is hit: a larger cr then hits the same samples and more.
        let (hit, u): (bool, f64) = (r.random::<f64>() < cr, r.random());
        let below = |count: usize| (u * count as f64) as u8;
        match self {
            _ if !hit => truth,
            Noise::Asymmetric => ASYMMETRIC[truth as usize],
            Noise::Cyclic => ((usize::from(truth) + 1) % classes) as u8,
            Noise::Redraw => below(classes),
            Noise::Uniform if classes < 2 => truth,
            Noise::Uniform => below(classes - 1) + u8::from(below(classes - 1) >= truth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(samples: usize) -> Arc<Dataset> {
        Arc::new(
            Dataset::new(vec![0; samples * 2], (0..samples).map(|i| (i % 10) as u8).collect(), 2, 10)
                .unwrap(),
        )
    }

    fn recipe(partition: Partition, noise: Noise) -> Recipe {
        Recipe { agents: 7, partition, split: Split::Share(0.9), noise, cr: 0.4, seed: 3 }
    }

    #[test]
    fn every_sample_is_dealt_once_and_nobody_is_empty() {
        let labels: Vec<u8> = (0..1000).map(|i| (i % 10) as u8).collect();
        for partition in [
            Partition::Uniform,
            Partition::Dirichlet(0.5),
            Partition::Dirichlet(0.1),
            Partition::Dirichlet(1e-4),
        ] {
            for seed in 0..5 {
                let parts = partition.deal(&labels, 10, 20, seed).unwrap();
                let mut all: Vec<u32> = parts.iter().flatten().copied().collect();
                all.sort_unstable();
                assert_eq!(all, (0..1000).collect::<Vec<u32>>());
                assert!(parts.len() == 20 && parts.iter().all(|p| p.len() >= 10));
                assert_eq!(parts, partition.deal(&labels, 10, 20, seed).unwrap());
                assert_ne!(parts, partition.deal(&labels, 10, 20, seed + 9).unwrap());
            }
        }
        assert!(Partition::Uniform.deal(&labels, 10, 20, 0).unwrap().iter().all(|p| p.len() == 50));
        assert!(Partition::Dirichlet(0.0).deal(&labels, 10, 20, 0).unwrap_err().contains("rho"));
        assert!(Partition::Uniform.deal(&labels, 10, 501, 0).is_err());
    }

    #[test]
    fn small_rho_skews_labels() {
        let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
        // The mean share of an agent's most frequent class: 0.1 if all are alike, 1 if each has one class.
        let skew = |rho: f64| {
            let parts = Partition::Dirichlet(rho).deal(&labels, 10, 10, 1).unwrap();
            let top = |p: &Vec<u32>| {
                let mut count = [0; 10];
                p.iter().for_each(|i| count[labels[*i as usize] as usize] += 1);
                *count.iter().max().unwrap() as f64 / p.len() as f64
            };
            parts.iter().map(top).sum::<f64>() / 10.0
        };
        assert!(skew(1000.0) < 0.13 && skew(0.1) > 0.4 && skew(0.5) > skew(5.0));
    }

    #[test]
    fn only_training_labels_go_wrong_and_the_mask_is_true() {
        for noise in [Noise::Asymmetric, Noise::Cyclic, Noise::Uniform, Noise::Redraw] {
            let dealt = recipe(Partition::Uniform, noise).deal(data(7000), data(10)).unwrap();
            let (mut wrong, mut total) = (0, 0);
            for hand in &dealt.hands {
                assert_eq!((hand.train.len(), hand.validation.len()), (900, 100));
                assert!(hand.validation.iter().all(|i| !hand.train.contains(i)));
                for ((i, given), w) in hand.train.iter().zip(&hand.given).zip(&hand.wrong) {
                    let truth = dealt.data.labels()[*i as usize];
                    assert_eq!(*w, truth != *given);
                    if noise == Noise::Cyclic && *w {
                        assert_eq!(*given, (truth + 1) % 10);
                    }
                    if noise == Noise::Asymmetric && *w {
                        assert_eq!(*given, ASYMMETRIC[truth as usize]);
                    }
                }
                wrong += hand.wrong.iter().filter(|w| **w).count();
                total += hand.wrong.len();
            }
            let (rate, expected) =
                (wrong as f64 / total as f64, if noise == Noise::Redraw { 0.36 } else { 0.4 });
            assert!((rate - expected).abs() < 0.03, "{noise:?} {rate}");
        }
        // The map swaps labels in pairs; none stays.
        assert!(
            (0..10).all(|l| ASYMMETRIC[l] as usize != l && ASYMMETRIC[ASYMMETRIC[l] as usize] as usize == l)
        );
    }

    #[test]
    fn compact_keeps_every_sample() {
        let data =
            Arc::new(Dataset::new((0..200).collect(), (0..100).map(|i| i % 10).collect(), 2, 10).unwrap());
        let recipe = Recipe {
            split: Split::Counts { train: 5, validation: 2 },
            ..recipe(Partition::Dirichlet(1.0), Noise::Uniform)
        };
        let (loose, compact) = (
            recipe.deal(data.clone(), data.clone()).unwrap(),
            recipe.deal(data.clone(), data).unwrap().compact(),
        );
        assert_eq!(compact.data.len(), 7 * 7);
        for (a, b) in loose.hands.iter().zip(&compact.hands) {
            for (i, j) in a.train.iter().chain(&a.validation).zip(b.train.iter().chain(&b.validation)) {
                assert_eq!(loose.data.image(*i as usize), compact.data.image(*j as usize));
                assert_eq!(loose.data.labels()[*i as usize], compact.data.labels()[*j as usize]);
            }
            assert!(a.given == b.given && a.wrong == b.wrong);
        }
    }

    #[test]
    fn uniform_flips_reach_every_other_label_alike() {
        let mut r = stream(1, Purpose::Labels, 0, 0);
        let mut count = [0; 10];
        (0..9000).for_each(|_| count[Noise::Uniform.label(4, 10, 1.0, &mut r) as usize] += 1);
        assert!(
            count[4] == 0 && count.iter().enumerate().all(|(l, c)| l == 4 || (850..1150).contains(c)),
            "{count:?}"
        );
    }

    #[test]
    fn each_choice_has_its_own_stream() {
        let base = recipe(Partition::Uniform, Noise::Uniform);
        let a = base.deal(data(700), data(10)).unwrap();
        let b =
            Recipe { noise: Noise::Asymmetric, cr: 0.9, ..base.clone() }.deal(data(700), data(10)).unwrap();
        for (a, b) in a.hands.iter().zip(&b.hands) {
            assert!(a.train == b.train && a.validation == b.validation);
            // A larger rate hits the same samples and more.
            assert!(a.wrong.iter().zip(&b.wrong).all(|(a, b)| !a || *b));
        }
        let counts = Recipe { split: Split::Counts { train: 20, validation: 5 }, ..base.clone() };
        assert!(
            counts
                .deal(data(700), data(10))
                .unwrap()
                .hands
                .iter()
                .all(|h| h.train.len() == 20 && h.validation.len() == 5)
        );
        let greedy = Recipe { split: Split::Counts { train: 99, validation: 5 }, ..base.clone() };
        assert!(greedy.deal(data(700), data(10)).unwrap_err().contains("100 samples"));
        assert!(Recipe { cr: 1.5, ..base }.deal(data(700), data(10)).is_err());
    }
}
