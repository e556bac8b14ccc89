//! Element by element: the same bits at every width.
use super::Real;
use super::cpu::for_each_cpu;

for_each_cpu! {
    /// `a += b`.
    pub(crate) fn add<T: Real>(a: &mut [T], b: &[T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += *b;
        }
    }
}

for_each_cpu! {
    /// `a += s·b`.
    pub(crate) fn add_scaled<T: Real>(a: &mut [T], s: T, b: &[T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += s * *b;
        }
    }
}

for_each_cpu! {
    /// `a = s·(b − a)`.
    pub(crate) fn scale_difference<T: Real>(a: &mut [T], s: T, b: &[T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = s * (*b - *a);
        }
    }
}

for_each_cpu! {
    /// `a −= s∘b`.
    pub(crate) fn sub_scaled<T: Real>(a: &mut [T], s: &[T], b: &[T]) {
        for ((a, s), b) in a.iter_mut().zip(s).zip(b) {
            *a -= *s * *b;
        }
    }
}

for_each_cpu! {
    /// Exact Diffusion alone: `psi⁺ = a − s∘b`, `a += psi⁺ − psi`.
    pub(crate) fn diffuse<T: Real>(a: &mut [T], psi: &mut [T], s: &[T], b: &[T]) {
        for (((a, psi), s), b) in a.iter_mut().zip(psi).zip(s).zip(b) {
            let next = *a - *s * *b;
            *a = *a + next - *psi;
            *psi = next;
        }
    }
}

for_each_cpu! {
    /// `a += a − old`, and `old` what `a` was.
    pub(crate) fn extrapolate<T: Real>(a: &mut [T], old: &mut [T]) {
        for (a, old) in a.iter_mut().zip(old) {
            let now = *a;
            *a += now - *old;
            *old = now;
        }
    }
}

for_each_cpu! {
    /// `a −= s∘(b − old)`, and `old = b`.
    pub(crate) fn sub_scaled_change<T: Real>(a: &mut [T], old: &mut [T], s: &[T], b: &[T]) {
        for (((a, old), s), b) in a.iter_mut().zip(old).zip(s).zip(b) {
            *a -= *s * (*b - *old);
            *old = *b;
        }
    }
}

for_each_cpu! {
    /// `m⁺ = s·m + t·d`, and `d` is the new m, or the old one.
    pub(crate) fn momentum<T: Real>(m: &mut [T], d: &mut [T], s: T, t: T, old: bool) {
        for (m, d) in m.iter_mut().zip(d) {
            let next = s * *m + t * *d;
            *d = if old { *m } else { next };
            *m = next;
        }
    }
}

for_each_cpu! {
    /// `m⁺ = s·(m − back) + d`, and `d` is the new m.
    pub(crate) fn storm<T: Real>(m: &mut [T], d: &mut [T], s: T, back: &[T]) {
        for ((m, d), back) in m.iter_mut().zip(d).zip(back) {
            *m = s * (*m - *back) + *d;
            *d = *m;
        }
    }
}

for_each_cpu! {
    /// `a = b / w`.
    pub(crate) fn divide<T: Real>(a: &mut [T], b: &[T], w: T) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = *b / w;
        }
    }
}

for_each_cpu! {
    /// `to = scale ∘ bytes + shift`.
    pub(crate) fn scale_pixels<T: Real>(to: &mut [T], bytes: &[u8], scale: &[T], shift: &[T]) {
        for (((to, byte), a), b) in to.iter_mut().zip(bytes).zip(scale).zip(shift) {
            *to = T::byte(*byte) * *a + *b;
        }
    }
}

for_each_cpu! {
    /// `row = max(row, 0)`.
    pub(crate) fn relu<T: Real>(row: &mut [T]) {
        for v in row {
            *v = if *v > T::ZERO { *v } else { T::ZERO };
        }
    }
}

for_each_cpu! {
    /// `back = 0` where the unit was off.
    pub(crate) fn mask<T: Real>(back: &mut [T], hidden: &[T]) {
        for (b, h) in back.iter_mut().zip(hidden) {
            *b = if *h > T::ZERO { *b } else { T::ZERO };
        }
    }
}

for_each_cpu! {
    fn squares<T: Real>(w: &[T], sums: &mut [f64; 16]) {
        for part in w.chunks(16) {
            for (s, v) in sums.iter_mut().zip(part) {
                *s += v.f64() * v.f64();
            }
        }
    }
}

/// ‖w‖², in sixteen sums that are the same at every width.
pub(crate) fn norm_squared<T: Real>(w: &[T]) -> f64 {
    let mut sums = [0.0; 16];
    squares(w, &mut sums);
    sums.iter().sum()
}
