// BERT's parts beside the matrix products. H hidden, I intermediate, L tokens a text, HEADS, CLASSES and MEAN
// are set when this is compiled, and BF16 if activations have 16 bits; what flows around the layers
// (residuals, their gradients, normalised values) has 32 bits in any case. A pass computes C texts of each
// agent: text q is place s0 + q % C of agent q / C in a batch of S places. Parameters of an agent lie
// `stride` numbers after those of the one before.

#ifdef BF16
typedef unsigned short act;
__device__ __forceinline__ float wide(act a) { return __uint_as_float((unsigned)a << 16); }
__device__ __forceinline__ act narrow(float x) {
    unsigned u = __float_as_uint(x);
    return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}
__device__ __forceinline__ float4 ld4(const act* p) {
    ushort4 u = *(const ushort4*)p;
    return make_float4(wide(u.x), wide(u.y), wide(u.z), wide(u.w));
}
__device__ __forceinline__ void st4(act* p, float4 v) {
    *(ushort4*)p = make_ushort4(narrow(v.x), narrow(v.y), narrow(v.z), narrow(v.w));
}
#else
typedef float act;
__device__ __forceinline__ float wide(act a) { return a; }
__device__ __forceinline__ act narrow(float x) { return x; }
__device__ __forceinline__ float4 ld4(const act* p) { return *(const float4*)p; }
__device__ __forceinline__ void st4(act* p, float4 v) { *(float4*)p = v; }
#endif

#define QUADS (H / 4)
#define EACH ((QUADS + 31) / 32)

__device__ __forceinline__ float warp_sum(float x) {
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
    for (int o = 16; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
    return x;
}
__device__ __forceinline__ float4 plus(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 times(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ __forceinline__ float total4(float4 a) { return (a.x + a.y) + (a.z + a.w); }

__device__ __forceinline__ int place_of(int q, int C, int s0, int S) { return q / C * S + s0 + q % C; }

// One warp normalises one token, of which lane l holds quads l, l + 32, …
__device__ void normalise(
    float4* x, act* out, float* beside, float* hat, float* rate, const float* scale, const float* shift,
    float eps
) {
    int lane = threadIdx.x % 32;
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) sum += total4(x[i]);
    float mean = warp_sum(sum) / H, square = 0;
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) {
        x[i] = make_float4(x[i].x - mean, x[i].y - mean, x[i].z - mean, x[i].w - mean);
        square += total4(times(x[i], x[i]));
    }
    float r = rsqrtf(warp_sum(square) / H + eps);
    if (lane == 0) *rate = r;
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) {
        int c = 4 * (lane + 32 * i);
        float4 n = make_float4(x[i].x * r, x[i].y * r, x[i].z * r, x[i].w * r);
        *(float4*)(hat + c) = n;
        n = plus(times(n, *(const float4*)(scale + c)), *(const float4*)(shift + c));
        st4(out + c, n);
#ifdef BF16
        *(float4*)(beside + c) = n;
#endif
    }
}

// The sum of a token's three vectors, normalised.
// `beside` gets the same with 32 bits, where `out` has fewer.
extern "C" __global__ void embed(
    act* out, float* beside, float* hat, float* rate, const unsigned short* data, const Place* batch,
    const float* words, const float* positions, const float* types, const float* scale, const float* shift,
    big stride, float eps, int C, int s0, int S, int total
) {
    int t = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= total) return;
    int q = t / L, p = t % L;
    big agent = (q / C) * stride;
    int id = data[(big)batch[place_of(q, C, s0, S)].sample * L + p];
    float4 x[EACH];
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) {
        int c = 4 * (lane + 32 * i);
        x[i] = plus(plus(*(const float4*)(words + agent + (big)id * H + c),
                         *(const float4*)(positions + agent + (big)p * H + c)),
                    *(const float4*)(types + agent + c));
    }
    normalise(x, out + (big)t * H, beside + (big)t * H, hat + (big)t * H, rate + t, scale + agent,
              shift + agent, eps);
}

// in + bias + residual, normalised.
extern "C" __global__ void layer_norm(
    act* out, float* beside, float* hat, float* rate, const float* in, const float* bias,
    const float* residual, const float* scale, const float* shift, big stride, float eps, int each, int total
) {
    int t = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= total) return;
    big agent = (t / each) * stride;
    float4 x[EACH];
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) {
        int c = 4 * (lane + 32 * i);
        x[i] = plus(plus(*(const float4*)(in + (big)t * H + c), *(const float4*)(residual + (big)t * H + c)),
                    *(const float4*)(bias + agent + c));
    }
    normalise(x, out + (big)t * H, beside + (big)t * H, hat + (big)t * H, rate + t, scale + agent,
              shift + agent, eps);
}

// The gradient by a norm's outputs becomes that by its inputs; `copy` gets it for the matrix products, where
// they take fewer bits.
extern "C" __global__ void norm_back(
    float* back, act* copy, const float* hat, const float* rate, const float* scale, big stride, int each,
    int total
) {
    int t = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t >= total) return;
    big agent = (t / each) * stride;
    float4 d[EACH], h[EACH];
    float sum = 0, along = 0;
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) {
        int c = 4 * (lane + 32 * i);
        h[i] = *(const float4*)(hat + (big)t * H + c);
        d[i] = times(*(const float4*)(back + (big)t * H + c), *(const float4*)(scale + agent + c));
        sum += total4(d[i]);
        along += total4(times(d[i], h[i]));
    }
    sum = warp_sum(sum) / H; along = warp_sum(along) / H;
    float r = rate[t];
    #pragma unroll
    for (int i = 0; i < EACH; i++) if (lane + 32 * i < QUADS) {
        int c = 4 * (lane + 32 * i);
        float4 to = make_float4(r * (d[i].x - sum - h[i].x * along), r * (d[i].y - sum - h[i].y * along),
                                r * (d[i].z - sum - h[i].z * along), r * (d[i].w - sum - h[i].w * along));
        *(float4*)(back + (big)t * H + c) = to;
#ifdef BF16
        st4(copy + (big)t * H + c, to);
#endif
    }
}

// Sums over an agent's tokens, a block of 32 × 32 threads for 32 columns: in order, so that they are the same
// every time.
__device__ float column_sum(float x) {
    __shared__ float part[32][33];
    __syncthreads();
    part[threadIdx.y][threadIdx.x] = x;
    __syncthreads();
    return warp_sum(part[threadIdx.x][threadIdx.y]);
}

// A parameter's gradient: `sum`, with what is there already if it is to be added.
__device__ __forceinline__ void put(float* g, int add, float sum) { *g = (add ? *g : 0.f) + sum; }

#ifdef BF16
__device__ __forceinline__ float wide(float x) { return x; }
#endif

template <typename T>
__device__ void columns_of(
    float* g, const T* back, big stride, int add, int columns, int each
) {
    int c = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (c < columns)
        for (int t = threadIdx.y; t < each; t += 32)
            sum += wide(back[((big)blockIdx.y * each + t) * columns + c]);
    sum = column_sum(sum);
    c = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && c < columns)
        put(g + blockIdx.y * stride + c, add, sum);
}

extern "C" __global__ void bias_columns(
    float* g, const act* back, big stride, int add, int columns, int each
) {
    columns_of(g, back, stride, add, columns, each);
}

extern "C" __global__ void back_columns(
    float* g, const float* back, big stride, int add, int columns, int each
) {
    columns_of(g, back, stride, add, columns, each);
}

extern "C" __global__ void norm_columns(
    float* g_scale, float* g_shift, const float* back, const float* hat, big stride, int add, int each
) {
    int c = blockIdx.x * 32 + threadIdx.x;
    float sum = 0, along = 0;
    if (c < H)
        for (int t = threadIdx.y; t < each; t += 32) {
            big at = ((big)blockIdx.y * each + t) * H + c;
            float d = back[at];
            sum += d; along += d * hat[at];
        }
    sum = column_sum(sum); along = column_sum(along);
    c = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && c < H) {
        big at = blockIdx.y * stride + c;
        put(g_shift + at, add, sum);
        put(g_scale + at, add, along);
    }
}

extern "C" __global__ void add_bias(act* x, const float* bias, big stride, int columns, int each) {
    big row = blockIdx.x;
    const float* b = bias + (row / each) * stride;
    for (int c = 4 * threadIdx.x; c < columns; c += 4 * blockDim.x)
        st4(x + row * columns + c, plus(ld4(x + row * columns + c), *(const float4*)(b + c)));
}

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
__device__ __forceinline__ float gelu_slope(float x) {
    return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * __expf(-0.5f * x * x);
}

extern "C" __global__ void bias_gelu(act* up, act* active, const float* bias, big stride, int each) {
    big row = blockIdx.x;
    const float* b = bias + (row / each) * stride;
    for (int c = 4 * threadIdx.x; c < I; c += 4 * blockDim.x) {
        float4 u = plus(ld4(up + row * I + c), *(const float4*)(b + c));
        st4(up + row * I + c, u);
        // What is kept for the way back is rounded; the value is of the rounded one too.
        st4(active + row * I + c, make_float4(gelu(u.x), gelu(u.y), gelu(u.z), gelu(u.w)));
    }
}

extern "C" __global__ void gelu_back(act* back, const act* up, big count) {
    for (big i = grid_first(4); i < count; i += grid_step(4)) {
        float4 u = ld4(up + i), d = ld4(back + i);
        st4(back + i, make_float4(d.x * gelu_slope(u.x), d.y * gelu_slope(u.y),
                                  d.z * gelu_slope(u.z), d.w * gelu_slope(u.w)));
    }
}

#define LINES ((L + 31) / 32)

// One warp a line of attention: scores (already scaled) to shares of the tokens that are not padding.
extern "C" __global__ void softmax(
    act* look, const float* scores, const Place* batch, const int* lengths, int C, int s0, int S, int total
) {
    int r = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= total) return;
    int used = lengths[batch[place_of(r / (HEADS * L), C, s0, S)].sample];
    const float* in = scores + (big)r * L;
    float x[LINES], top = -1e30f, sum = 0;
    #pragma unroll
    for (int i = 0; i < LINES; i++) {
        int c = lane + 32 * i;
        x[i] = c < used ? in[c] : -1e30f;
        top = fmaxf(top, x[i]);
    }
    top = warp_max(top);
    #pragma unroll
    for (int i = 0; i < LINES; i++) {
        x[i] = lane + 32 * i < used ? __expf(x[i] - top) : 0;
        sum += x[i];
    }
    sum = 1 / warp_sum(sum);
    #pragma unroll
    for (int i = 0; i < LINES; i++)
        if (lane + 32 * i < L) look[(big)r * L + lane + 32 * i] = narrow(x[i] * sum);
}

extern "C" __global__ void softmax_back(
    act* out, const float* back, const act* look, float scale, int total
) {
    int r = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= total) return;
    float d[LINES], p[LINES], along = 0;
    #pragma unroll
    for (int i = 0; i < LINES; i++) {
        int c = lane + 32 * i;
        d[i] = c < L ? back[(big)r * L + c] : 0;
        p[i] = c < L ? wide(look[(big)r * L + c]) : 0;
        along += d[i] * p[i];
    }
    along = warp_sum(along);
    #pragma unroll
    for (int i = 0; i < LINES; i++)
        if (lane + 32 * i < L) out[(big)r * L + lane + 32 * i] = narrow(scale * p[i] * (d[i] - along));
}

// What the head sees of each text.
extern "C" __global__ void pool(
    float* pooled, const act* x, const Place* batch, const int* lengths, int C, int s0, int S
) {
    int q = blockIdx.x, used = MEAN ? lengths[batch[place_of(q, C, s0, S)].sample] : 1;
    for (int c = threadIdx.x; c < H; c += blockDim.x) {
        float sum = 0;
        for (int t = 0; t < used; t++) sum += wide(x[((big)q * L + t) * H + c]);
        pooled[(big)q * H + c] = sum / used;
    }
}

// One warp a text: scores, loss, whether the guess is right, and the gradient by the scores.
extern "C" __global__ void head(
    float* slopes, float* losses, int* right, const float* pooled, const float* w, const float* bias,
    big stride, const Place* batch, const float* weights, int C, int s0, int S, int total
) {
    int q = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (q >= total) return;
    int place = place_of(q, C, s0, S);
    big agent = (q / C) * stride;
    float score[CLASSES], top = -1e30f, sum = 0;
    int best = 0;
    #pragma unroll
    for (int k = 0; k < CLASSES; k++) {
        float dot = 0;
        for (int c = lane; c < H; c += 32) dot += pooled[(big)q * H + c] * w[agent + k * H + c];
        score[k] = warp_sum(dot) + bias[agent + k];
        if (score[k] > top) { top = score[k]; best = k; }
    }
    #pragma unroll
    for (int k = 0; k < CLASSES; k++) sum += expf(score[k] - top);
    if (lane) return;
    int label = batch[place].label;
    float weight = weights ? weights[place] : 0;
    right[place] = best == label;
    #pragma unroll
    for (int k = 0; k < CLASSES; k++) {
        if (k == label) losses[place] = logf(sum) - (score[k] - top);
        slopes[q * CLASSES + k] = weight * (expf(score[k] - top) / sum - (k == label));
    }
}

// Scores alone, for a host that decides what flows back.
extern "C" __global__ void score(
    float* scores, const float* pooled, const float* w, const float* bias, big stride, int C, int total
) {
    int q = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (q >= total) return;
    big agent = (q / C) * stride;
    for (int k = 0; k < CLASSES; k++) {
        float dot = 0;
        for (int c = lane; c < H; c += 32) dot += pooled[(big)q * H + c] * w[agent + k * H + c];
        dot = warp_sum(dot);
        if (!lane) scores[q * CLASSES + k] = dot + bias[agent + k];
    }
}

extern "C" __global__ void head_columns(
    float* g, float* g_bias, const float* slopes, const float* pooled, big stride, int add, int C
) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * C;
    big agent = blockIdx.y * stride;
    for (int k = 0; k < CLASSES; k++) {
        float sum = 0, all = 0;
        for (int s = 0; s < C; s++) {
            float d = slopes[(first + s) * CLASSES + k];
            if (c < H) sum += d * pooled[(big)(first + s) * H + c];
            all += d;
        }
        if (c < H) put(g + agent + k * H + c, add, sum);
        if (c == 0) put(g_bias + agent + k, add, all);
    }
}

// The head's gradient, back to the tokens that it saw.
extern "C" __global__ void unpool(
    float* back, const float* slopes, const float* w, big stride, const Place* batch, const int* lengths,
    int C, int s0, int S
) {
    int q = blockIdx.x / L, t = blockIdx.x % L;
    int used = MEAN ? lengths[batch[place_of(q, C, s0, S)].sample] : 1;
    big agent = (q / C) * stride;
    for (int c = threadIdx.x; c < H; c += blockDim.x) {
        float d = 0;
        if (t < used) {
            for (int k = 0; k < CLASSES; k++) d += slopes[q * CLASSES + k] * w[agent + k * H + c];
            d /= used;
        }
        back[(big)blockIdx.x * H + c] = d;
    }
}

// g = weight_decay · w over a range of every agent's parameters.
extern "C" __global__ void begin_range(float* g, const float* w, big stride, big count, float weight_decay) {
    big agent = blockIdx.y * stride;
    for (big i = grid_first(4); i < count; i += grid_step(4)) {
        float4 v = make_float4(0, 0, 0, 0);
        if (weight_decay) {
            v = *(const float4*)(w + agent + i);
            v = make_float4(weight_decay * v.x, weight_decay * v.y, weight_decay * v.z, weight_decay * v.w);
        }
        *(float4*)(g + agent + i) = v;
    }
}

// One block a token: the block of a word's first place in the agent's texts adds up the gradients of all its
// places, in order.
extern "C" __global__ void word_columns(
    float* g, const float* back, const unsigned short* data, const Place* batch, big stride, int C, int s0,
    int S
) {
    __shared__ int same[128];
    int agent = blockIdx.y, first = blockIdx.x, all = C * L;
    auto id_at = [&](int t) { return (int)data[(big)batch[agent * S + s0 + t / L].sample * L + t % L]; };
    int id = id_at(first), before = 0;
    for (int t = threadIdx.x; t < first; t += blockDim.x) before |= id_at(t) == id;
    if (__syncthreads_or(before)) return;
    float4 sum[EACH];
    #pragma unroll
    for (int i = 0; i < EACH; i++) sum[i] = make_float4(0, 0, 0, 0);
    for (int from = first; from < all; from += 128) {
        int t = from + threadIdx.x;
        __syncthreads();
        same[threadIdx.x] = t < all && id_at(t) == id;
        __syncthreads();
        for (int j = 0; j < 128; j++) if (same[j]) {
            const float* row = back + ((big)agent * all + from + j) * H;
            #pragma unroll
            for (int i = 0; i < EACH; i++) {
                int quad = threadIdx.x + 128 * i;
                if (quad < QUADS) sum[i] = plus(sum[i], *(const float4*)(row + 4 * quad));
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
        int quad = threadIdx.x + 128 * i;
        if (quad < QUADS) {
            float4* at = (float4*)(g + agent * stride + (big)id * H + 4 * quad);
            *at = plus(*at, sum[i]);
        }
    }
}

extern "C" __global__ void position_columns(float* g, const float* back, big stride, int C) {
    int p = blockIdx.x, agent = blockIdx.y;
    for (int c = threadIdx.x; c < H; c += blockDim.x) {
        float sum = 0;
        for (int s = 0; s < C; s++) sum += back[(((big)agent * C + s) * L + p) * H + c];
        g[agent * stride + (big)p * H + c] += sum;
    }
}

// Parameters of a range, as 16 bits, for the matrix products.
extern "C" __global__ void narrow_range(unsigned short* to, const float* w, big stride, big count) {
    for (big i = grid_first(4); i < count; i += grid_step(4)) {
        float4 v = *(const float4*)(w + blockIdx.y * stride + i);
        unsigned x = __float_as_uint(v.x), y = __float_as_uint(v.y);
        unsigned z = __float_as_uint(v.z), u = __float_as_uint(v.w);
        auto half = [](unsigned b) { return (unsigned short)((b + 0x7fff + ((b >> 16) & 1)) >> 16); };
        *(ushort4*)(to + blockIdx.y * count + i) = make_ushort4(half(x), half(y), half(z), half(u));
    }
}
