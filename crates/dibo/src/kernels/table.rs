//! A table given column by column, times a vector: from the left and from the right.
use super::cpu::for_each_cpu;
use super::{LANES, Real};

for_each_cpu! {
    /// `out = table · x`: row by row a sum in the order of the columns.
    pub(crate) fn times<T: Real>(table: &[T], x: &[T], out: &mut [T]) {
        let mut columns = table.chunks_exact(out.len()).zip(x);
        if let Some((column, x)) = columns.next() {
            out.iter_mut().zip(column).for_each(|(o, c)| *o = *c * *x);
        }
        for (column, x) in columns {
            out.iter_mut().zip(column).for_each(|(o, c)| *o += *c * *x);
        }
    }
}

for_each_cpu! {
    /// `out += sign · tableᵀ · e`. Each sum runs in eight lanes that are added up at its end, so the bits are
    /// the same at every width; four sums side by side read `e` once.
    pub(crate) fn add_transposed<T: Real>(table: &[T], e: &[T], sign: T, out: &mut [T]) {
        let rows = e.len();
        for (columns, out) in table.chunks(4 * rows).zip(out.chunks_mut(4)) {
            match (columns.len() / rows, out) {
                (4, [a, b, c, d]) => {
                    let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|q| &columns[q * rows..][..rows]);
                    let sums = dots([c0, c1, c2, c3], e);
                    [a, b, c, d].into_iter().zip(sums).for_each(|(o, sum)| *o += sign * sum);
                }
                (_, out) => {
                    for (o, column) in out.iter_mut().zip(columns.chunks_exact(rows)) {
                        *o += sign * dots([column], e)[0];
                    }
                }
            }
        }
    }
}

/// The products of some columns with one vector.
#[inline(always)]
fn dots<T: Real, const Q: usize>(columns: [&[T]; Q], e: &[T]) -> [T; Q] {
    let mut lanes = [[T::ZERO; LANES]; Q];
    let whole = e.len() / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let e: &[T; LANES] = e[at..].first_chunk().expect("a whole group");
        for (lanes, column) in lanes.iter_mut().zip(&columns) {
            let column: &[T; LANES] = column[at..].first_chunk().expect("a whole group");
            (0..LANES).for_each(|l| lanes[l] += e[l] * column[l]);
        }
    }
    for (lanes, column) in lanes.iter_mut().zip(&columns) {
        lanes.iter_mut().zip(e[whole..].iter().zip(&column[whole..])).for_each(|(s, (e, c))| *s += *e * *c);
    }
    lanes.map(|lanes| lanes.into_iter().fold(T::ZERO, |sum, lane| sum + lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, for lengths with and without a rest and any number of columns.
    #[test]
    fn a_table_times_a_vector_is_the_definition() {
        for (rows, columns) in [(1, 1), (7, 3), (8, 4), (20, 5), (33, 9), (400, 50)] {
            let number = |i: usize| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0;
            let table: Vec<f64> = (0..rows * columns).map(number).collect();
            let (x, e): (Vec<f64>, Vec<f64>) =
                ((3..3 + columns).map(number).collect(), (7..7 + rows).map(number).collect());
            let (mut right, mut left) = (vec![9.0; rows], vec![0.5; columns]);
            times(&table, &x, &mut right);
            add_transposed(&table, &e, -1.0, &mut left);
            for s in 0..rows {
                let sum = (0..columns).map(|q| table[q * rows + s] * x[q]).fold(0.0, |a, b| a + b);
                assert_eq!(right[s], sum);
            }
            for q in 0..columns {
                let sum: f64 = (0..rows).map(|s| table[q * rows + s] * e[s]).sum();
                assert!((left[q] - (0.5 - sum)).abs() < 1e-12 * rows as f64);
            }
        }
    }
}
