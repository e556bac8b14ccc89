//! Matrix products on the GPU: cuBLASLt for one product per agent at even distances, cuBLAS for many small
//! ones at given places.
//!
//! Matrices are by rows here; cuBLAS takes them by columns, so each product is handed over transposed: Dᵀ =
//! Bᵀ Aᵀ.
use cudarc::cublas::{result as blas, sys as blas_sys};
use cudarc::cublaslt::{result, sys};
use cudarc::driver::result as driver;
use cudarc::driver::sys::CUstream;
use std::collections::HashMap;
use std::ffi::c_void;

/// The kind of number a matrix holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// 32 bits; products use TF32.
    F32,
    /// 16 bits, with the range of the former.
    Bf16,
}

impl Kind {
    pub fn bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::Bf16 => 2,
        }
    }

    fn lt(self) -> sys::cudaDataType {
        match self {
            Kind::F32 => sys::cudaDataType::CUDA_R_32F,
            Kind::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        }
    }

    fn blas(self) -> blas_sys::cudaDataType {
        match self {
            Kind::F32 => blas_sys::cudaDataType::CUDA_R_32F,
            Kind::Bf16 => blas_sys::cudaDataType::CUDA_R_16BF,
        }
    }
}

/// One matrix per agent: rows `line` numbers apart, agents `apart`. `turned` if its transpose is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub at: u64,
    pub kind: Kind,
    pub line: usize,
    pub apart: usize,
    pub turned: bool,
}

impl Matrix {
    pub fn new(at: u64, kind: Kind, line: usize, apart: usize) -> Self {
        Matrix { at, kind, line, apart, turned: false }
    }

    pub fn turned(self) -> Self {
        Matrix { turned: !self.turned, ..self }
    }
}

/// Shape of a product: (m × k)(k × n), for so many agents.
pub(crate) type Shape = (usize, usize, usize, usize);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    kinds: [Kind; 3],
    lines: [usize; 4],
    apart: [usize; 4],
    turned: [bool; 2],
    aligned: [u32; 4],
}

struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
}

/// Handles, workspace and the plans of all products seen so far.
pub(crate) struct Products {
    lt: sys::cublasLtHandle_t,
    blas: blas_sys::cublasHandle_t,
    stream: CUstream,
    workspace: u64,
    plans: HashMap<Key, Plan>,
}

// SAFETY: the handles may be used from any one thread at a time, and `Gpu` holds this behind a lock.
unsafe impl Send for Products {}

const WORKSPACE: usize = 64 << 20;

impl Products {
    pub fn new(stream: CUstream) -> Result<Self, String> {
        let lt = result::create_handle().map_err(|e| format!("cuBLASLt does not start: {e:?}"))?;
        let handle = blas::create_handle().map_err(|e| format!("cuBLAS does not start: {e:?}"))?;
        // SAFETY: the handle was just made; the stream lives as long as the GPU that owns both; the workspace
        // is never freed before.
        let workspace = unsafe {
            blas_sys::cublasSetStream_v2(handle, stream.cast()).result().map_err(|e| format!("{e:?}"))?;
            driver::malloc_sync(WORKSPACE)
                .map_err(|e| format!("no room for {WORKSPACE} bytes of workspace: {e:?}"))?
        };
        Ok(Products { lt, blas: handle, stream, workspace, plans: HashMap::new() })
    }

    /// `d = a · b + beta · c` for every agent; `c` may be `d`.
    pub fn product(
        &mut self,
        shape: Shape,
        d: Matrix,
        a: Matrix,
        b: Matrix,
        beta: f32,
        c: Matrix,
    ) -> Result<(), String> {
        let aligned = [a, b, c, d].map(|m| 1 << (m.at.trailing_zeros().min(8)));
        let key = Key {
            shape,
            kinds: [a.kind, d.kind, c.kind],
            lines: [a.line, b.line, c.line, d.line],
            apart: [a.apart, b.apart, c.apart, d.apart],
            turned: [a.turned, b.turned],
            aligned,
        };
        if !self.plans.contains_key(&key) {
            let plan = self
                .plan(shape, d, a, b, c, aligned)
                .map_err(|e| format!("no product for {shape:?}: {e:?}"))?;
            self.plans.insert(key, plan);
        }
        let plan = &self.plans[&key];
        let one = 1.0f32;
        // SAFETY: the plan's layouts describe these matrices, which lie in memory that the callers own.
        unsafe {
            result::matmul(
                self.lt,
                plan.operation,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                b.at as *const c_void,
                plan.layouts[0],
                a.at as *const c_void,
                plan.layouts[1],
                c.at as *const c_void,
                plan.layouts[2],
                d.at as *mut c_void,
                plan.layouts[3],
                &plan.algorithm,
                self.workspace as *mut c_void,
                plan.workspace,
                self.stream.cast(),
            )
        }
        .map_err(|e| format!("product {shape:?}: {e:?}"))
    }

    fn plan(
        &self,
        (m, n, k, agents): Shape,
        d: Matrix,
        a: Matrix,
        b: Matrix,
        c: Matrix,
        aligned: [u32; 4],
    ) -> Result<Plan, result::CublasError> {
        use sys::cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB};
        use sys::cublasLtMatmulPreferenceAttributes_t as wish;
        use sys::cublasLtMatrixLayoutAttribute_t::{
            CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
        };
        let compute = match a.kind {
            Kind::F32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            Kind::Bf16 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let operation = result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)?;
        let layout = |matrix: Matrix, rows: usize, columns: usize| {
            // By rows this is rows × columns; by columns the transpose.
            let (rows, columns) = if matrix.turned { (columns, rows) } else { (rows, columns) };
            let layout = result::create_matrix_layout(
                matrix.kind.lt(),
                columns as u64,
                rows as u64,
                matrix.line as i64,
            )?;
            let (count, apart) = (agents as i32, matrix.apart as i64);
            // SAFETY: the layout was just made, and the attributes have these types.
            unsafe {
                result::set_matrix_layout_attribute(
                    layout,
                    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                    (&raw const count).cast(),
                    4,
                )?;
                result::set_matrix_layout_attribute(
                    layout,
                    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    (&raw const apart).cast(),
                    8,
                )?;
            }
            Ok(layout)
        };
        let layouts = [layout(b, k, n)?, layout(a, m, k)?, layout(c, m, n)?, layout(d, m, n)?];
        let preference = result::create_matmul_pref()?;
        // SAFETY: descriptor and preference were just made, and the attributes have these types.
        unsafe {
            for (attribute, turned) in
                [(CUBLASLT_MATMUL_DESC_TRANSA, b.turned), (CUBLASLT_MATMUL_DESC_TRANSB, a.turned)]
            {
                let value = i32::from(turned);
                result::set_matmul_desc_attribute(operation, attribute, (&raw const value).cast(), 4)?;
            }
            let room = WORKSPACE;
            let attribute = wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            result::set_matmul_pref_attribute(
                preference,
                attribute,
                (&raw const room).cast(),
                size_of::<usize>(),
            )?;
            let [a, b, c, d] = aligned;
            for (attribute, bytes) in [
                (wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
                (wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
                (wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
                (wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
            ] {
                result::set_matmul_pref_attribute(preference, attribute, (&raw const bytes).cast(), 4)?;
            }
            let [b, a, c, d] = layouts;
            let best = result::get_matmul_algo_heuristic(self.lt, operation, b, a, c, d, preference)?;
            result::destroy_matmul_pref(preference)?;
            Ok(Plan { operation, layouts, algorithm: best.algo, workspace: best.workspaceSize })
        }
    }

    /// `d = alpha · a · b` for `count` products, whose matrices begin where the tables on the device say.
    pub fn many(
        &mut self,
        (m, n, k): (usize, usize, usize),
        alpha: f32,
        d: Matrix,
        a: Matrix,
        b: Matrix,
        count: usize,
    ) -> Result<(), String> {
        use blas_sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
        let turn = |turned: bool| if turned { CUBLAS_OP_T } else { CUBLAS_OP_N };
        let compute = match a.kind {
            Kind::F32 => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            Kind::Bf16 => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let beta = 0.0f32;
        // SAFETY: the tables hold `count` pointers to matrices of these shapes.
        unsafe {
            blas_sys::cublasGemmBatchedEx(
                self.blas,
                turn(b.turned),
                turn(a.turned),
                n as i32,
                m as i32,
                k as i32,
                (&raw const alpha).cast(),
                b.at as *const *const c_void,
                b.kind.blas(),
                b.line as i32,
                a.at as *const *const c_void,
                a.kind.blas(),
                a.line as i32,
                (&raw const beta).cast(),
                d.at as *const *mut c_void,
                d.kind.blas(),
                d.line as i32,
                count as i32,
                compute,
                blas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .result()
        .map_err(|e| format!("{count} products {:?}: {e:?}", (m, n, k)))
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: everything was made here and is let go once.
        unsafe {
            for plan in self.plans.values() {
                let _ = result::destroy_matmul_desc(plan.operation);
                for layout in plan.layouts {
                    let _ = result::destroy_matrix_layout(layout);
                }
            }
            let _ = result::destroy_handle(self.lt);
            let _ = blas::destroy_handle(self.blas);
            let _ = driver::free_sync(self.workspace);
        }
    }
}
