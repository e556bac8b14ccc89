// Rows: what an iteration does to whole stacks. Every kernel reads and writes each number once.

// Variables end at these columns of a row; each has one step.
struct Steps { long long end[4]; float eta[4]; };

__device__ __forceinline__ float step_at(const Steps& s, long long c) {
    return c < s.end[0] ? s.eta[0] : c < s.end[1] ? s.eta[1] : c < s.end[2] ? s.eta[2] : s.eta[3];
}

extern "C" __global__ void add_scaled(float* a, float scale, const float* b, long long n) {
    for (long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * 4; i < n; i += (long long)gridDim.x * blockDim.x * 4) {
        float4 x = *(float4*)(a + i), y = *(const float4*)(b + i);
        x.x += scale * y.x; x.y += scale * y.y; x.z += scale * y.z; x.w += scale * y.w;
        *(float4*)(a + i) = x;
    }
}

extern "C" __global__ void scale_difference(float* a, float scale, const float* b, long long n) {
    for (long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * 4; i < n; i += (long long)gridDim.x * blockDim.x * 4) {
        float4 x = *(float4*)(a + i), y = *(const float4*)(b + i);
        x.x = scale * (y.x - x.x); x.y = scale * (y.y - x.y); x.z = scale * (y.z - x.z); x.w = scale * (y.w - x.w);
        *(float4*)(a + i) = x;
    }
}

extern "C" __global__ void sub_steps(float* a, const float* b, Steps s, long long stride) {
    float *pa = a + blockIdx.y * stride; const float* pb = b + blockIdx.y * stride;
    for (long long c = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * 4; c < stride; c += (long long)gridDim.x * blockDim.x * 4) {
        float4 x = *(float4*)(pa + c), y = *(const float4*)(pb + c);
        x.x -= step_at(s, c) * y.x; x.y -= step_at(s, c + 1) * y.y; x.z -= step_at(s, c + 2) * y.z; x.w -= step_at(s, c + 3) * y.w;
        *(float4*)(pa + c) = x;
    }
}

extern "C" __global__ void divide(float* a, const float* b, const float* weights, long long stride) {
    float w = weights[blockIdx.y];
    float *pa = a + blockIdx.y * stride; const float* pb = b + blockIdx.y * stride;
    for (long long c = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * 4; c < stride; c += (long long)gridDim.x * blockDim.x * 4) {
        float4 y = *(const float4*)(pb + c);
        *(float4*)(pa + c) = make_float4(y.x / w, y.y / w, y.z / w, y.w / w);
    }
}

// Any number of agents: old rows are read from copies, links from compressed rows. One block a piece of columns and row.
extern "C" __global__ void mix_sparse(float* v, const float* old_v, float* t, const float* old_t, const float* d, const int* start, const int* from,
                                      const float* a, const float* b, Steps s, long long stride) {
    int i = blockIdx.y;
    for (long long c = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * 4; c < stride; c += (long long)gridDim.x * blockDim.x * 4) {
        float4 pv = make_float4(0, 0, 0, 0), pt = pv;
        for (int e = start[i]; e < start[i + 1]; e++) {
            long long at = from[e] * stride + c;
            float4 y = *(const float4*)(old_t + at);
            float w = b[e];
            pt.x += w * y.x; pt.y += w * y.y; pt.z += w * y.z; pt.w += w * y.w;
            if (v) {
                y = *(const float4*)(old_v + at); w = a[e];
                pv.x += w * y.x; pv.y += w * y.y; pv.z += w * y.z; pv.w += w * y.w;
            }
        }
        long long at = i * stride + c;
        if (v) {
            float4 y = *(const float4*)(old_t + at);
            pv.x -= step_at(s, c) * y.x; pv.y -= step_at(s, c + 1) * y.y; pv.z -= step_at(s, c + 2) * y.z; pv.w -= step_at(s, c + 3) * y.w;
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
extern "C" __global__ void mean_columns(float* mean, const float* a, long long from, long long width, long long stride, int rows) {
    for (long long c = blockIdx.x * (long long)blockDim.x + threadIdx.x; c < width; c += (long long)gridDim.x * blockDim.x) {
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
extern "C" __global__ void spread_rows(double* out, const float* a, long long from, long long width, long long stride, int rows) {
    double all = 0;
    for (long long c = blockIdx.x * (long long)blockDim.x + threadIdx.x; c < width; c += (long long)gridDim.x * blockDim.x) {
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
extern "C" __global__ void gap_rows(double* out, const float* a, const float* b, long long from, long long width, long long stride, int rows) {
    double all = 0;
    for (long long c = blockIdx.x * (long long)blockDim.x + threadIdx.x; c < width; c += (long long)gridDim.x * blockDim.x) {
        double sum = 0;
        for (int i = 0; i < rows; i++) sum += (double)a[i * stride + from + c] - b[i * stride + from + c];
        all += sum * sum;
    }
    all = block_sum(all);
    if (threadIdx.x == 0) out[blockIdx.x] = all;
}

// out[row · blocks + block] = Σ over columns of b²
extern "C" __global__ void square_rows(double* out, const float* b, long long from, long long width, long long stride) {
    double all = 0;
    for (long long c = blockIdx.x * (long long)blockDim.x + threadIdx.x; c < width; c += (long long)gridDim.x * blockDim.x) {
        double x = b[blockIdx.y * stride + from + c];
        all += x * x;
    }
    all = block_sum(all);
    if (threadIdx.x == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = all;
}
