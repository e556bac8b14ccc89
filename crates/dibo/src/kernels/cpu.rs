//! Which instructions this CPU has, and functions compiled for each kind.

/// The level in a word.
pub fn cpu_name() -> &'static str {
    match level() {
        3 => "avx512",
        2 => "avx2",
        _ => "baseline",
    }
}

/// 3 with AVX-512, 2 with AVX2 and FMA, 1 otherwise; looked up once. `DIBO_CPU=avx2` or `baseline` makes a
/// better CPU do as if it were that one, for tests.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn level() -> u8 {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static LEVEL: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn look() -> u8 {
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        let wide = wide
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        let level = if wide {
            3
        } else {
            1 + u8::from(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
        };
        let level = level.min(match std::env::var("DIBO_CPU").as_deref() {
            Ok("baseline") => 1,
            Ok("avx2") => 2,
            _ => 3,
        });
        LEVEL.store(level, Relaxed);
        level
    }
    match LEVEL.load(Relaxed) {
        0 => look(),
        level => level,
    }
}

/// Other CPUs have one kind of registers.
#[cfg(not(target_arch = "x86_64"))]
pub fn level() -> u8 {
    1
}

/// Compiles a function for several instruction sets and calls the best one that this CPU has. An `unsafe`
/// one names its registers: `V` holds a group of columns in what the CPU has.
macro_rules! for_each_cpu {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident<$t:ident: Real>($($arg:ident: $ty:ty),* $(,)?) $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name<$t: Real>($($arg: $ty),*) {
            #[inline(always)]
            fn body<$t: Real>($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2")]
                fn avx512<$t: Real>($($arg: $ty),*) { body::<$t>($($arg),*) }
                #[target_feature(enable = "avx2")]
                fn avx2<$t: Real>($($arg: $ty),*) { body::<$t>($($arg),*) }
                // SAFETY: the CPU has the features of its level.
                match $crate::kernels::cpu::level() {
                    3 => return unsafe { avx512::<$t>($($arg),*) },
                    2 => return unsafe { avx2::<$t>($($arg),*) },
                    _ => {}
                }
            }
            body::<$t>($($arg),*)
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis unsafe fn $name:ident<$t:ident: Real, $v:ident>($($arg:ident: $ty:ty),* $(,)?) $body:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name<$t: Real>($($arg: $ty),*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn body<$t: Real, $v: Vector<$t, GROUP>>($($arg: $ty),*) $body
            // SAFETY of all: the caller's, and the CPU has the features of its level.
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2")]
                #[allow(clippy::too_many_arguments)]
                unsafe fn avx512<$t: Real>($($arg: $ty),*) {
                    unsafe { body::<$t, $t::Avx512>($($arg),*) }
                }
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                unsafe fn avx2<$t: Real>($($arg: $ty),*) {
                    unsafe { body::<$t, $t::Avx2>($($arg),*) }
                }
                match $crate::kernels::cpu::level() {
                    3 => unsafe { avx512::<$t>($($arg),*) },
                    2 => unsafe { avx2::<$t>($($arg),*) },
                    _ => unsafe { body::<$t, $t::Sse2>($($arg),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            unsafe {
                body::<$t, [$t; GROUP]>($($arg),*)
            }
        }
    };
}

pub(super) use for_each_cpu;
