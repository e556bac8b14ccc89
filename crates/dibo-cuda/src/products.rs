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

/// One matrix per agent: rows `line` numbers apart, agents `apart`. `transposed` if its
/// transpose is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub at: u64,
    pub kind: Kind,
    pub line: usize,
    pub apart: usize,
    pub transposed: bool,
}

impl Matrix {
    pub fn new(at: u64, kind: Kind, line: usize, apart: usize) -> Self {
        Matrix { at, kind, line, apart, transposed: false }
    }

    pub fn transposed(self) -> Self {
        Matrix { transposed: !self.transposed, ..self }
    }
}

/// Shape of a product: (m × k)(k × n), for so many agents.
pub(crate) type Shape = (usize, usize, usize, usize);

/// All that a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    kinds: [Kind; 3],
    lines: [usize; 4],
    apart: [usize; 4],
    transposed: [bool; 2],
    aligned: [u32; 4],
    full: bool,
}

/// How cuBLASLt computes a product.
#[derive(Clone, Copy)]
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
    /// Whether 32 bits are all used, where TF32 has 19.
    pub full: bool,
}

// SAFETY: the handles may be used from any one thread at a time, and `Gpu` holds this behind a lock.
unsafe impl Send for Products {}

/// Bytes that cuBLASLt may use beside the matrices.
const WORKSPACE: usize = 64 << 20;

impl Products {
    pub fn new(stream: CUstream) -> Result<Self, String> {
        let lt = result::create_handle().map_err(|e| format!("cuBLASLt does not start: {e:?}"))?;
        let blas = match blas::create_handle() {
            Ok(blas) => blas,
            Err(e) => {
                // SAFETY: made above, and let go once.
                let _ = unsafe { result::destroy_handle(lt) };
                return Err(format!("cuBLAS does not start: {e:?}"));
            }
        };
        // From here on `Drop` lets go of everything.
        let mut products = Products { lt, blas, stream, workspace: 0, plans: HashMap::new(), full: false };
        // SAFETY: the handle was just made; the stream lives as long as the GPU that owns both; the workspace
        // is freed with the handles.
        unsafe {
            let set = blas_sys::cublasSetStream_v2(blas, stream.cast()).result();
            set.map_err(|e| format!("cuBLAS does not take the stream: {e}"))?;
            products.workspace = driver::malloc_sync(WORKSPACE)
                .map_err(|e| format!("the workspace of {WORKSPACE} bytes does not fit: {e}"))?;
        }
        Ok(products)
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
            transposed: [a.transposed, b.transposed],
            aligned,
            full: self.full,
        };
        let plan = match self.plans.get(&key) {
            Some(plan) => *plan,
            None => {
                let plan = self.plan(shape, d, a, b, c, aligned);
                let plan = plan.map_err(|e| format!("no product for {shape:?}: {e}"))?;
                self.plans.insert(key, plan);
                plan
            }
        };
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
        .map_err(|e| format!("{shape:?}: {e}"))
    }

    /// Asks cuBLASLt how to compute a product of such matrices.
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
        let compute = match a.kind {
            Kind::F32 if !self.full => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let operation = result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)?;
        let layouts = [
            layout(b, k, n, agents)?,
            layout(a, m, k, agents)?,
            layout(c, m, n, agents)?,
            layout(d, m, n, agents)?,
        ];
        let preference = preference(aligned)?;
        // SAFETY: descriptor, layouts and preference were just made, and the attributes have this type.
        unsafe {
            for (attribute, transposed) in
                [(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed), (CUBLASLT_MATMUL_DESC_TRANSB, a.transposed)]
            {
                let value = i32::from(transposed);
                result::set_matmul_desc_attribute(operation, attribute, (&raw const value).cast(), 4)?;
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
        let operation = |transposed: bool| if transposed { CUBLAS_OP_T } else { CUBLAS_OP_N };
        let compute = match a.kind {
            Kind::F32 if !self.full => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let beta = 0.0f32;
        // SAFETY: the tables hold `count` pointers to matrices of these shapes.
        unsafe {
            blas_sys::cublasGemmBatchedEx(
                self.blas,
                operation(b.transposed),
                operation(a.transposed),
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
        .map_err(|e| format!("{count} of {:?}: {e}", (m, n, k)))
    }
}

/// Describes a matrix of so many rows and columns, after its transposition, to cuBLASLt.
fn layout(
    matrix: Matrix,
    rows: usize,
    columns: usize,
    agents: usize,
) -> Result<sys::cublasLtMatrixLayout_t, result::CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t::{
        CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
    };
    // By rows this is rows × columns; by columns the transpose.
    let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
    let layout =
        result::create_matrix_layout(matrix.kind.lt(), columns as u64, rows as u64, matrix.line as i64)?;
    let (count, apart) = (agents as i32, matrix.apart as i64);
    // SAFETY: the layout was just made, and the attributes have these types.
    unsafe {
        let (attribute, value) = (CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast());
        result::set_matrix_layout_attribute(layout, attribute, value, 4)?;
        let (attribute, value) = (CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const apart).cast());
        result::set_matrix_layout_attribute(layout, attribute, value, 8)?;
    }
    Ok(layout)
}

/// What cuBLASLt may rely on: the workspace, and how the matrices a, b, c and d are aligned.
fn preference([a, b, c, d]: [u32; 4]) -> Result<sys::cublasLtMatmulPreference_t, result::CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t::{
        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    let preference = result::create_matmul_pref()?;
    // SAFETY: the preference was just made, and the attributes have these types.
    unsafe {
        let (capacity, size) = (WORKSPACE, size_of::<usize>());
        let (attribute, value) = (CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const capacity).cast());
        result::set_matmul_pref_attribute(preference, attribute, value, size)?;
        for (attribute, bytes) in [
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
        ] {
            result::set_matmul_pref_attribute(preference, attribute, (&raw const bytes).cast(), 4)?;
        }
    }
    Ok(preference)
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
            if self.workspace != 0 {
                let _ = driver::free_sync(self.workspace);
            }
        }
    }
}
