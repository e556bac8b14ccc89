// Rows: what an iteration does to whole stacks. Every kernel reads and writes each number once.

extern "C" __global__ void add_scaled(float* a, float scale, const float* b, big n) {
    for (big i = grid_first(4); i < n; i += grid_step(4)) {
        float4 x = *(float4*)(a + i), y = *(const float4*)(b + i);
        x.x += scale * y.x; x.y += scale * y.y; x.z += scale * y.z; x.w += scale * y.w;
        *(float4*)(a + i) = x;
    }
}

extern "C" __global__ void scale_difference(float* a, float scale, const float* b, big n) {
    for (big i = grid_first(4); i < n; i += grid_step(4)) {
        float4 x = *(float4*)(a + i), y = *(const float4*)(b + i);
        x.x = scale * (y.x - x.x); x.y = scale * (y.y - x.y);
        x.z = scale * (y.z - x.z); x.w = scale * (y.w - x.w);
        *(float4*)(a + i) = x;
    }
}

extern "C" __global__ void sub_steps(float* a, const float* b, Steps s, big stride) {
    float *pa = a + blockIdx.y * stride; const float* pb = b + blockIdx.y * stride;
    for (big c = grid_first(4); c < stride; c += grid_step(4)) {
        float4 x = *(float4*)(pa + c), y = *(const float4*)(pb + c);
        x.x -= step_at(s, c) * y.x; x.y -= step_at(s, c + 1) * y.y;
        x.z -= step_at(s, c + 2) * y.z; x.w -= step_at(s, c + 3) * y.w;
        *(float4*)(pa + c) = x;
    }
}

extern "C" __global__ void divide(float* a, const float* b, const float* weights, big stride) {
    float w = weights[blockIdx.y];
    float *pa = a + blockIdx.y * stride; const float* pb = b + blockIdx.y * stride;
    for (big c = grid_first(4); c < stride; c += grid_step(4)) {
        float4 y = *(const float4*)(pb + c);
        *(float4*)(pa + c) = make_float4(y.x / w, y.y / w, y.z / w, y.w / w);
    }
}

// a −= step · mean of b's rows, in every row.
extern "C" __global__ void sub_mean(float* a, const float* b, Steps s, big stride, int rows) {
    for (big c = grid_first(1); c < stride; c += grid_step(1)) {
        float sum = 0;
        for (int i = 0; i < rows; i++) sum += b[i * stride + c];
        float by = step_at(s, c) * (sum / rows);
        for (int i = 0; i < rows; i++) a[i * stride + c] -= by;
    }
}

// The size of a difference as a number whose order is that of its bits.
__device__ unsigned size_of(float a, float b) { return __float_as_uint(fabsf(b - a)); }

// Each row of a takes over the `top` columns in which it is farthest from b, the first of equals first. A block
// of 1,024 threads a row: first the smallest size that is taken, byte by byte from above, then the columns.
extern "C" __global__ void take_largest(float* a, const float* b, big from, big width, big stride, big top) {
    __shared__ unsigned count[256], warps[32], smallest;
    __shared__ big left;
    float* pa = a + blockIdx.x * stride + from; const float* pb = b + blockIdx.x * stride + from;
    int thread = threadIdx.x, warp = thread / 32;
    if (thread == 0) { smallest = 0; left = top; }
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (thread < 256) count[thread] = 0;
        __syncthreads();
        unsigned known = shift == 24 ? 0 : ~0u << (shift + 8);
        for (big c = thread; c < width; c += blockDim.x) {
            unsigned size = size_of(pa[c], pb[c]);
            if ((size & known) == smallest) atomicAdd(&count[size >> shift & 255], 1u);
        }
        __syncthreads();
        if (thread == 0) {
            unsigned byte = 255;
            while (byte > 0 && count[byte] < left) left -= count[byte--];
            smallest |= byte << shift;
        }
        __syncthreads();
    }
    big seen = 0;
    for (big first = 0; first < width; first += blockDim.x) {
        big c = first + thread;
        unsigned size = c < width ? size_of(pa[c], pb[c]) : 0;
        bool equal = c < width && size == smallest;
        unsigned equals = __ballot_sync(~0u, equal);
        if (thread % 32 == 0) warps[warp] = __popc(equals);
        __syncthreads();
        big before = seen + __popc(equals & ((1u << thread % 32) - 1));
        for (int w = 0; w < 32; w++) { if (w < warp) before += warps[w]; seen += warps[w]; }
        if (c < width && (size > smallest || equal && before < left)) pa[c] += pb[c] - pa[c];
        __syncthreads();
    }
}

// a = keep a + scale b in columns `to` on, of those `from` on; with keep 0 what was there counts for nothing.
extern "C" __global__ void blend(
    float* a, const float* b, float keep, float scale, big to, big from, big width, big stride_a, big stride_b
) {
    float* pa = a + blockIdx.y * stride_a + to; const float* pb = b + blockIdx.y * stride_b + from;
    for (big c = grid_first(1); c < width; c += grid_step(1))
        pa[c] = (keep == 0 ? 0 : keep * pa[c]) + scale * pb[c];
}

extern "C" __global__ void scale_rows(float* a, const float* factors, big from, big width, big stride) {
    float factor = factors[blockIdx.y], *p = a + blockIdx.y * stride + from;
    for (big c = grid_first(1); c < width; c += grid_step(1)) p[c] *= factor;
}

// to = y + step z, with a step for each row.
extern "C" __global__ void away(
    float* to, const float* y, const float* z, const float* steps, big width, big stride
) {
    float step = steps[blockIdx.y]; big at = blockIdx.y * stride;
    for (big c = grid_first(1); c < width; c += grid_step(1)) to[at + c] = y[at + c] + step * z[at + c];
}

// a = scale (a − b), with a scale for each row.
extern "C" __global__ void difference(float* a, const float* b, const float* scales, big width, big stride) {
    float scale = scales[blockIdx.y]; big at = blockIdx.y * stride;
    for (big c = grid_first(1); c < width; c += grid_step(1)) a[at + c] = scale * (a[at + c] - b[at + c]);
}

// Any number of agents: old rows are read from copies, links from compressed rows. One block a piece of
// columns and row.
extern "C" __global__ void mix_sparse(
    float* v, const float* old_v, float* t, const float* old_t, const float* d, const int* start,
    const int* from, const float* a, const float* b, Steps s, big stride
) {
    int i = blockIdx.y;
    for (big c = grid_first(4); c < stride; c += grid_step(4)) {
        float4 pv = make_float4(0, 0, 0, 0), pt = pv;
        for (int e = start[i]; e < start[i + 1]; e++) {
            big at = from[e] * stride + c;
            float4 y = *(const float4*)(old_t + at);
            float w = b[e];
            pt.x += w * y.x; pt.y += w * y.y; pt.z += w * y.z; pt.w += w * y.w;
            if (v) {
                y = *(const float4*)(old_v + at); w = a[e];
                pv.x += w * y.x; pv.y += w * y.y; pv.z += w * y.z; pv.w += w * y.w;
            }
        }
        big at = i * stride + c;
        if (v) {
            float4 y = *(const float4*)(old_t + at);
            pv.x -= step_at(s, c) * y.x; pv.y -= step_at(s, c + 1) * y.y;
            pv.z -= step_at(s, c + 2) * y.z; pv.w -= step_at(s, c + 3) * y.w;
            *(float4*)(v + at) = pv;
        }
        if (d) {
            float4 y = *(const float4*)(d + at);
            pt.x -= y.x; pt.y -= y.y; pt.z -= y.z; pt.w -= y.w;
        }
        *(float4*)(t + at) = pt;
    }
}

// mean[c] over rows
extern "C" __global__ void mean_columns(
    float* mean, const float* a, big from, big width, big stride, int rows
) {
    for (big c = grid_first(1); c < width; c += grid_step(1)) {
        float sum = 0;
        for (int i = 0; i < rows; i++) sum += a[i * stride + from + c];
        mean[c] = sum / rows;
    }
}

__device__ double block_sum(double x) {
    __shared__ double part[32];
    for (int o = 16; o; o >>= 1) x += __shfl_down_sync(~0u, x, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        x = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int o = 16; o; o >>= 1) x += __shfl_down_sync(~0u, x, o);
    }
    return x;
}

// out[block] = Σ over columns and rows of (a − mean)²
extern "C" __global__ void spread_rows(
    double* out, const float* a, big from, big width, big stride, int rows
) {
    double all = 0;
    for (big c = grid_first(1); c < width; c += grid_step(1)) {
        double sum = 0, square = 0;
        for (int i = 0; i < rows; i++) sum += a[i * stride + from + c];
        sum /= rows;
        for (int i = 0; i < rows; i++) { double x = a[i * stride + from + c] - sum; square += x * x; }
        all += square;
    }
    all = block_sum(all);
    if (threadIdx.x == 0) out[blockIdx.x] = all;
}

// out[block] = Σ over columns of (Σ a − Σ b)²
extern "C" __global__ void gap_rows(
    double* out, const float* a, const float* b, big from, big width, big stride, int rows
) {
    double all = 0;
    for (big c = grid_first(1); c < width; c += grid_step(1)) {
        double sum = 0;
        for (int i = 0; i < rows; i++) sum += (double)a[i * stride + from + c] - b[i * stride + from + c];
        all += sum * sum;
    }
    all = block_sum(all);
    if (threadIdx.x == 0) out[blockIdx.x] = all;
}

// out[row · blocks + block] = Σ over columns of a row's products of those `from` on with those `other` on
extern "C" __global__ void dot_rows(
    double* out, const float* b, big from, big other, big width, big stride
) {
    double all = 0;
    const float* row = b + blockIdx.y * stride;
    for (big c = grid_first(1); c < width; c += grid_step(1)) all += (double)row[from + c] * row[other + c];
    all = block_sum(all);
    if (threadIdx.x == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = all;
}
