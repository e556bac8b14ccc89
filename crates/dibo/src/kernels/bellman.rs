//! Directions of policy evaluation, f = ½‖Φx − y‖² and g = ‖y − r − Mx‖², for agents with small tables: each
//! entry of Φ and M is read once for two agents.
use super::LANES;
use super::simd::Fused;
#[cfg(target_arch = "x86_64")]
use super::simd::Registers;

/// Φ and M by feature and group of states. The last group ends at the last state and so overlaps the one
/// before; `reduce` has zeros there, so that no state counts twice in a sum.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    states: usize,
    features: usize,
    offsets: Vec<usize>,
    forward: Vec<Both>,
    reduce: Vec<Both>,
}

/// Φ and M of one feature at eight states, each on a cache line of its own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Both {
    phi: [f64; LANES],
    m: [f64; LANES],
}

impl Tables {
    /// Of Φ and M, both given feature by feature, for so many states.
    pub fn new(states: usize, phi: &[f64], m: &[f64]) -> Self {
        assert!(phi.len() == m.len() && phi.len().is_multiple_of(states), "Φ and M have one shape");
        let groups = states / LANES + usize::from(!states.is_multiple_of(LANES));
        let offsets: Vec<usize> = if states < LANES {
            Vec::new()
        } else {
            (0..groups).map(|g| (g * LANES).min(states - LANES)).collect()
        };
        let (mut forward, mut reduce) = (Vec::new(), Vec::new());
        for (phi, m) in phi.chunks_exact(states).zip(m.chunks_exact(states)) {
            for (g, offset) in offsets.iter().enumerate() {
                let eight = |of: &[f64], first: usize| {
                    std::array::from_fn(|l| if offset + l < first { 0.0 } else { of[offset + l] })
                };
                forward.push(Both { phi: eight(phi, 0), m: eight(m, 0) });
                reduce.push(Both { phi: eight(phi, g * LANES), m: eight(m, g * LANES) });
            }
        }
        Tables { states, features: phi.len() / states, offsets, forward, reduce }
    }
}

/// The factors of one call: residual of f, residual of g, regulariser; what a series makes of ∇ᵧf; and which
/// directions are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    pub f: f64,
    pub g: f64,
    pub tau: f64,
    pub series: f64,
    pub wanted: u8,
}

/// The penalty's directions of x, y and z.
pub(crate) const PENALTY: u8 = 0;
/// SOBA's.
pub(crate) const SOBA: u8 = 1;
/// SOBA's of x, y or z alone: each leaves out half of the tables' work or more.
pub(crate) const SOBA_ONLY: [u8; 3] = [SOBA_X, SOBA_Y, SOBA_Z];
const SOBA_X: u8 = 2;
const SOBA_Y: u8 = 3;
const SOBA_Z: u8 = 4;
/// Those of x and y where z is a multiple of ∇ᵧf.
pub(crate) const SERIES: u8 = 5;

/// Fused numbers from a place that is known to be there.
#[inline(always)]
unsafe fn eight<V: Fused>(from: &[f64], at: usize) -> V {
    V::load(unsafe { &*from.as_ptr().add(at).cast() })
}

/// One agent's rewards, and its rows of variables and directions: x, y and z side by side.
struct Agent<'a> {
    r: &'a [f64],
    v: &'a [f64],
    d: &'a mut [f64],
}

/// One feature's part of Mᵀgap − Φᵀe for each agent, lane by lane.
#[inline(always)]
fn products<V: Fused, const G: usize, const A: usize>(
    entries: &[Both; G],
    e: &[[V; G]; A],
    gap: &[[V; G]; A],
) -> [V; A] {
    let (mut sum, mut other) = ([V::splat(0.0); A], [V::splat(0.0); A]);
    for g in 0..G {
        let (phi, m) = (V::load(&entries[g].phi), V::load(&entries[g].m));
        for a in 0..A {
            sum[a] = e[a][g].mul_add(phi, sum[a]);
            other[a] = gap[a][g].mul_add(m, other[a]);
        }
    }
    for a in 0..A {
        sum[a] = other[a].sub(sum[a]);
    }
    sum
}

/// The directions of `A` agents, from `G` groups of eight states that stay in registers; each entry of Φ and
/// M is read once for all of them. What an agent gets does not depend on who is with it.
#[inline(always)]
fn directions_of_groups<V: Fused, const G: usize, const A: usize, const WANTED: u8>(
    tables: &Tables,
    first: usize,
    c: Factors,
    agents: &mut [Agent<'_>; A],
) {
    let Tables { states, features, .. } = *tables;
    let offsets: &[usize; G] = tables.offsets[first..first + G].try_into().expect("G groups");
    let entries = |of: &'_ [Both], q: usize| -> *const [Both; G] {
        of[q * tables.offsets.len() + first..][..G].as_ptr().cast()
    };
    let [all_or_x, all_or_y, all_or_z] =
        SOBA_ONLY.map(|only| WANTED <= SOBA || WANTED == only || WANTED == SERIES && only != SOBA_Z);
    let zero = V::splat(0.0);
    let (mut px, mut mx) = ([[zero; G]; A], [[zero; G]; A]);
    for q in 0..features {
        // SAFETY: G entries, as the slice above has checked.
        let entries = unsafe { &*entries(&tables.forward, q) };
        let mut x = [zero; A];
        for a in 0..A {
            x[a] = V::splat(agents[a].v[q]);
        }
        for g in 0..G {
            let (phi, m) = (V::load(&entries[g].phi), V::load(&entries[g].m));
            for a in 0..A {
                if all_or_x || all_or_z {
                    px[a][g] = phi.mul_add(x[a], px[a][g]);
                }
                if all_or_y {
                    mx[a][g] = m.mul_add(x[a], mx[a][g]);
                }
            }
        }
    }
    let (cf, cg, series) = (V::splat(c.f), V::splat(c.g), V::splat(c.series));
    let (mut e, mut gap) = ([[zero; G]; A], [[zero; G]; A]);
    for (a, Agent { r, v, d }) in agents.iter_mut().enumerate() {
        let (_, v) = v.split_at(features);
        let ((y, z), (dy, dz)) = (v.split_at(states), d[features..].split_at_mut(states));
        let there = |z: usize| z >= states || WANTED == SERIES;
        // Checked once, not group by group: offsets rise.
        assert!(offsets[G - 1] + LANES <= states && r.len() >= states && there(z.len()) && there(dz.len()));
        for g in 0..G {
            let at = offsets[g];
            // SAFETY: checked above.
            let (y, r) = unsafe { (eight::<V>(y, at), eight::<V>(r, at)) };
            let to_y = unsafe { &mut *dy.as_mut_ptr().add(at).cast() };
            let target = r.add(mx[a][g]);
            e[a][g] = cf.mul(y.sub(px[a][g]));
            if WANTED == SERIES {
                gap[a][g] = cg.mul(series.mul(e[a][g]));
                cg.mul(y.sub(target)).store(to_y);
                continue;
            }
            // SAFETY: checked above.
            let z = unsafe { eight::<V>(z, at) };
            let to_z = unsafe { &mut *dz.as_mut_ptr().add(at).cast() };
            if WANTED == PENALTY {
                gap[a][g] = cg.mul(z.sub(y));
                cg.mul_add(y.sub(target), e[a][g]).store(to_y);
                cg.mul(z.sub(target)).store(to_z);
                continue;
            }
            // ∇²ᵧᵧg z is cg·z and −∇²ₓᵧg z is Mᵀ of it; ∇ᵧf is e.
            gap[a][g] = cg.mul(z);
            if all_or_y {
                cg.mul(y.sub(target)).store(to_y);
            }
            if all_or_z {
                gap[a][g].sub(e[a][g]).store(to_z);
            }
        }
    }
    if !all_or_x {
        return;
    }
    // dx = τx + Mᵀgap − Φᵀe; sums over lanes are cheaper four at a time.
    for from in (0..features).step_by(4 / A) {
        let mut four = [zero; 4];
        for (s, to) in four.as_chunks_mut::<A>().0.iter_mut().enumerate() {
            if from + s < features {
                // SAFETY: as above.
                *to = products(unsafe { &*entries(&tables.reduce, from + s) }, &e, &gap);
            }
        }
        let sums = V::sums(four);
        for s in 0..4 {
            let (q, Agent { v, d, .. }) = (from + s / A, &mut agents[s % A]);
            if q < features {
                d[q] = if first == 0 { c.tau * v[q] } else { d[q] } + sums[s];
            }
        }
    }
}

#[inline(always)]
fn directions_of_agents<V: Fused, const A: usize, const WANTED: u8>(
    tables: &Tables,
    c: Factors,
    mut agents: [Agent<'_>; A],
) {
    let mut first = 0;
    while first < tables.offsets.len() {
        let groups = (tables.offsets.len() - first).min(V::WIDEST);
        match groups {
            1 => directions_of_groups::<V, 1, A, WANTED>(tables, first, c, &mut agents),
            2 => directions_of_groups::<V, 2, A, WANTED>(tables, first, c, &mut agents),
            3 => directions_of_groups::<V, 3, A, WANTED>(tables, first, c, &mut agents),
            _ => directions_of_groups::<V, 4, A, WANTED>(tables, first, c, &mut agents),
        }
        first += groups;
    }
}

/// Rows of variables and directions, and whose they are; `noisy` are the rewards of the only agent, where
/// they are not the agents' own.
pub(crate) struct Block<'a> {
    pub tables: &'a [Tables],
    /// Which of the tables each agent has.
    pub table_of: &'a [usize],
    /// Rewards of all agents, and the distance between two of them.
    pub rewards: (&'a [f64], usize),
    pub c: Factors,
    pub owned: &'a [usize],
    pub noisy: Option<&'a [f64]>,
    pub stride: usize,
    pub v: &'a [f64],
    pub d: &'a mut [f64],
}

/// All agents of a block, two at a time where they share their features and there are registers for two.
#[inline(always)]
fn directions_of<V: Fused, const WANTED: u8>(block: Block<'_>) {
    let Block { tables, table_of, rewards, c, owned, noisy, stride, v, d } = block;
    let table = |row: usize| table_of[owned[row]];
    // A closure within this one would be called, from registers that have to be put away for it.
    let reward = |row: usize| match noisy {
        Some(noisy) => noisy,
        None => &rewards.0[owned[row] * rewards.1..][..rewards.1],
    };
    let mut rows = v.chunks_exact(stride).zip(d.chunks_exact_mut(stride));
    let mut row = 0;
    while row < owned.len() {
        let tables = &tables[table(row)];
        let Some((v, d)) = rows.next() else { return };
        let one = Agent { r: reward(row), v, d };
        if V::PAIRS && row + 1 < owned.len() && table(row) == table(row + 1) {
            let Some((v, d)) = rows.next() else { return };
            directions_of_agents::<V, 2, WANTED>(tables, c, [one, Agent { r: reward(row + 1), v, d }]);
            row += 2;
        } else {
            directions_of_agents::<V, 1, WANTED>(tables, c, [one]);
            row += 1;
        }
    }
}

/// The wanted directions.
#[inline(always)]
fn directions_of_block<V: Fused>(block: Block<'_>) {
    match block.c.wanted {
        PENALTY => directions_of::<V, PENALTY>(block),
        SOBA => directions_of::<V, SOBA>(block),
        SOBA_X => directions_of::<V, SOBA_X>(block),
        SOBA_Y => directions_of::<V, SOBA_Y>(block),
        SERIES => directions_of::<V, SERIES>(block),
        _ => directions_of::<V, SOBA_Z>(block),
    }
}

/// The directions of a block's agents, with the CPU's registers.
pub(crate) fn directions(block: Block<'_>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m256d, __m512d};
        #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2")]
        fn avx512(block: Block<'_>) {
            directions_of_block::<Registers<__m512d, 1>>(block);
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2(block: Block<'_>) {
            directions_of_block::<Registers<__m256d, 2>>(block);
        }
        // SAFETY: the CPU has the features of its level.
        match super::cpu::level() {
            3 => return unsafe { avx512(block) },
            2 => return unsafe { avx2(block) },
            _ => {}
        }
    }
    directions_of_block::<[f64; LANES]>(block);
}
