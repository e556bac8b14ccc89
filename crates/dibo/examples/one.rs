use dibo::{
    algorithm::{Algorithm, fab::Fab},
    graph, mixing,
    network::Simulator,
    problem::PolicyEvaluation,
    rows::Threads,
};
fn main() {
    let a: Vec<f64> = std::env::args().skip(1).map(|s| s.parse().unwrap()).collect();
    let (n, nu, k, l) = (a[0] as usize, a[1], a[2] as usize, a[3] as usize);
    let problem = PolicyEvaluation::random(n, 20, 5, 0).normalised();
    let graphs =
        graph::Cycle::new(n, nu, 0).phases([l; 3]).redraw(if a[4] == 0.0 { graph::Redraw::Never } else { graph::Redraw::Iteration });
    let mut network = Simulator::new(mixing::Sequence::uniform(graphs), Threads::new(a[5] as usize));
    let mut state = Fab::normalised(0.1).start(&problem, &mut network, &Default::default());
    let t = std::time::Instant::now();
    for i in 0..k {
        state.step(i, &problem, &mut network);
    }
    println!("{:.3} us", t.elapsed().as_secs_f64() / k as f64 * 1e6);
}
