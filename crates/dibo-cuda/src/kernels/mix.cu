// v⁺ = A v − η t and t⁺ = B t − d for N agents at once: a thread holds the numbers of all agents in W
// columns, so each is read and written once. A and B come as arguments, which lie in constant memory. N and W
// are set when this is compiled.
struct Weights { float a[N * N], b[N * N]; };

#if W == 4
typedef float4 Some;
#elif W == 2
typedef float2 Some;
#else
typedef float Some;
#endif

// v may be null (nothing is pulled), as may d. `plus`: t is t + d to begin with.
extern "C" __global__ void __launch_bounds__(128) mix(
    float* __restrict__ v, float* __restrict__ t, const float* __restrict__ d, int plus, Steps s, big stride,
    const __grid_constant__ Weights w
) {
    for (big c = grid_first(W); c < stride; c += grid_step(W)) {
        __align__(16) float x[N][W], y[N][W];
        #pragma unroll
        for (int j = 0; j < N; j++) *(Some*)y[j] = *(const Some*)(t + j * stride + c);
        if (v) {
            #pragma unroll
            for (int j = 0; j < N; j++) *(Some*)x[j] = *(const Some*)(v + j * stride + c);
        }
        __align__(16) float e[N][W];
        #pragma unroll
        for (int j = 0; j < N; j++) {
            if (d) *(Some*)e[j] = *(const Some*)(d + j * stride + c);
            else for (int q = 0; q < W; q++) e[j][q] = 0;
        }
        if (plus) {
            #pragma unroll
            for (int j = 0; j < N; j++)
                #pragma unroll
                for (int q = 0; q < W; q++) y[j][q] += e[j][q];
        }
        float eta[W];
        #pragma unroll
        for (int q = 0; q < W; q++) eta[q] = step_at(s, c + q);
        #pragma unroll
        for (int i = 0; i < N; i++) {
            __align__(16) float to[W];
            if (v) {
                #pragma unroll
                for (int q = 0; q < W; q++) to[q] = -eta[q] * y[i][q];
                #pragma unroll
                for (int j = 0; j < N; j++)
                    #pragma unroll
                    for (int q = 0; q < W; q++) to[q] += w.a[i * N + j] * x[j][q];
                *(Some*)(v + i * stride + c) = *(Some*)to;
            }
            #pragma unroll
            for (int q = 0; q < W; q++) to[q] = -e[i][q];
            #pragma unroll
            for (int j = 0; j < N; j++)
                #pragma unroll
                for (int q = 0; q < W; q++) to[q] += w.b[i * N + j] * y[j][q];
            *(Some*)(t + i * stride + c) = *(Some*)to;
        }
    }
}
