use dibo::{
    algorithm::{Algorithm, fab::Fab},
    graph, mixing,
    network::Simulator,
    problem::PolicyEvaluation,
    rows::Threads,
};
fn main() {
    for (n, nu, k, l) in [(10, 0.3, 2_000_000usize, 10), (100, 0.05, 200_000, 10), (1000, 0.05, 5000, 1)] {
        for threads in [1, 2] {
            for redraw in [graph::Redraw::Never, graph::Redraw::Iteration] {
                let problem = PolicyEvaluation::random(n, 20, 5, 0).normalised();
                let mut best = f64::INFINITY;
                for _ in 0..3 {
                    let graphs = graph::Cycle::new(n, nu, 0).phases([l; 3]).redraw(redraw);
                    let mut network = Simulator::new(mixing::Sequence::uniform(graphs), Threads::new(threads));
                    let mut state = Fab::normalised(0.1).start(&problem, &mut network, &Default::default());
                    for i in 0..60 {
                        state.step(i, &problem, &mut network);
                    }
                    let t = std::time::Instant::now();
                    for i in 60..60 + k / 3 {
                        state.step(i, &problem, &mut network);
                    }
                    best = best.min(t.elapsed().as_secs_f64() / (k / 3) as f64);
                }
                println!("n={n} threads={threads} {redraw:?}: {:.0} it/s, {:.3} us", 1.0 / best, best * 1e6);
            }
        }
    }
}
