//! The quick start of cleaning: 100 agents × (20 training + 5 validation) MNIST samples, a linear model, 60 % of the labels flipped.
//! usage: quick_cleaning DATA_FOLDER [ITERATIONS] [cr] [unit|standardised|per-pixel] [SEEDS]
use dibo::algorithm::{Algorithm, Single, ab::PushPull, fab::Fab};
use dibo::data::{Noise, Official, Partition, Recipe, Scaling, Split};
use dibo::problem::learning::{Learning, Model, Task, TrainOn};
use dibo::rows::Threads;
use dibo::{engine, graph, mixing, network::Simulator, problem::Bilevel, rng};
use rand::seq::SliceRandom;
use std::{path::Path, sync::Arc, time::Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let arg = |i: usize, or: &str| args.get(i).cloned().unwrap_or(or.into());
    let (iterations, cr, seeds): (usize, f64, u64) = (arg(2, "1600").parse()?, arg(3, "0.6").parse()?, arg(5, "5").parse()?);
    let scaling = match &*arg(4, "standardised") {
        "unit" => Scaling::Unit,
        "per-pixel" => Scaling::PerPixel,
        _ => Scaling::Standardised,
    };
    let (train, test) = Official::Mnist.read(Path::new(args.get(1).ok_or("usage: quick_cleaning DATA_FOLDER")?))?;
    let (threads, test) = (Threads::new(std::thread::available_parallelism()?.get()), Arc::new(test));
    let mut table: Vec<(String, Vec<Vec<f64>>)> = Vec::new();
    let mut seconds = 0.0;
    for seed in 0..seeds {
        let mut some: Vec<u32> = (0..train.len() as u32).collect();
        some.shuffle(&mut rng::stream(seed, rng::Purpose::Instance, 0, 0));
        let recipe = Recipe {
            agents: 100,
            partition: Partition::Uniform,
            split: Split::Counts { train: 20, validation: 5 },
            noise: Noise::Uniform,
            cr,
            seed,
        };
        let dealt = Arc::new(recipe.deal(Arc::new(train.subset(&some[..2500])), test.clone())?.compact());
        let fab = |eta_x: f64| Fab {
            lambda: 1.0.into(),
            eta_x: eta_x.into(),
            eta_y: 0.005.into(),
            eta_z: None,
            penalty_form: Default::default(),
        };
        let push_pull = || Box::new(Single(PushPull { eta: 0.005.into() })) as Box<dyn Algorithm<f32>>;
        let mut runs = vec![
            ("FAB".to_string(), Box::new(fab(100.0)) as _, TrainOn::Both, 0.0),
            ("frozen weights".to_string(), Box::new(fab(0.0)) as _, TrainOn::Both, 0.0),
            ("validation only".to_string(), push_pull(), TrainOn::Validation, 0.002),
        ];
        runs.extend([0.02, 0.2, 0.4, 0.8].map(|tau| (format!("AB/Push-Pull tau={tau}"), push_pull(), TrainOn::Both, tau)));
        for (name, algorithm, on, tau) in runs {
            let task = Task::Cleaning { tau: 0.002, psi: 0.0 };
            let problem =
                Learning::<f32>::new(dealt.clone(), Model::Linear, task, scaling, seed)?.baseline(on, tau).threads(threads.clone());
            let mut network = Simulator::new(mixing::Sequence::uniform(graph::Cycle::new(100, 0.05, seed)), threads.clone());
            let plan = engine::Plan { iterations, every: 200, target: None, diverged_above: 1e6 };
            let from = Instant::now();
            let record = engine::run(&*algorithm, &problem, &mut network, &problem.start(), &plan, None, &mut ())?;
            let last = record.samples.last().ok_or("no samples")?;
            seconds += last.seconds;
            let get = |m: &str| last.get(m).unwrap_or(f64::NAN);
            if seed == 0 {
                let curve: Vec<String> = record
                    .samples
                    .iter()
                    .map(|s| format!("{:.2}/{:.3}", s.get("test_accuracy").unwrap_or(f64::NAN), s.get("auc").unwrap_or(f64::NAN)))
                    .collect();
                println!("{name}: {} ({:.2} s, {:.2} s with metrics)", curve.join(" "), last.seconds, from.elapsed().as_secs_f64());
            }
            let values =
                ["test_accuracy", "test_accuracy_z", "auc", "f1", "weight_clean", "weight_wrong", "agents_accuracy"].map(get).to_vec();
            match table.iter_mut().find(|t| t.0 == name) {
                Some(row) => row.1.push(values),
                None => table.push((name, vec![values])),
            }
        }
    }
    println!(
        "{seeds} seeds, cr={cr}, {iterations} iterations, {scaling:?}, {seconds:.1} s of iterations. y, z, AUC, F1, weight clean, wrong, agents:"
    );
    for (name, rows) in table {
        let columns: Vec<String> = (0..rows[0].len())
            .map(|c| {
                let mean = rows.iter().map(|r| r[c]).sum::<f64>() / rows.len() as f64;
                let deviation = (rows.iter().map(|r| (r[c] - mean).powi(2)).sum::<f64>() / (rows.len().max(2) - 1) as f64).sqrt();
                format!("{mean:.3}±{deviation:.3}")
            })
            .collect();
        println!("{name:24} {}", columns.join("  "));
    }
    Ok(())
}
