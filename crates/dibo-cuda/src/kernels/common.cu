// What the modules share; it comes before each of them.
typedef long long big;

// One place of a batch: its sample, its number among the agent's training samples (−1 for none), its label
// and the factor of its loss.
struct Place { int sample, own, label; float factor; };

// Variables end at these columns of a row; each has one step.
struct Steps { big end[4]; float eta[4]; };

__device__ __forceinline__ float step_at(const Steps& s, big c) {
    return c < s.end[0] ? s.eta[0] : c < s.end[1] ? s.eta[1] : c < s.end[2] ? s.eta[2] : s.eta[3];
}

// A grid loops over numbers in groups of this size: where a thread begins, and how far its next group is.
__device__ __forceinline__ big grid_first(int group) {
    return (blockIdx.x * (big)blockDim.x + threadIdx.x) * group;
}
__device__ __forceinline__ big grid_step(int group) { return (big)gridDim.x * blockDim.x * group; }

