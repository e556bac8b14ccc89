// What all learning problems share, and the MLP. A batch has S places for each agent, the first `train` of
// them for training samples.

// Factor of each loss: that of the table, times σ(ψ) for training samples where there is a ψ.
extern "C" __global__ void sample_weights(
    float* weights, const Place* batch, const float* psi, const big* starts, int S, int train, int total
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    Place p = batch[i];
    float w = p.factor;
    if (psi && i % S < train && p.own >= 0) w /= 1 + expf(-psi[starts[i / S] + p.own]);
    weights[i] = w;
}

// dx = scale factor σ(1 − σ)(loss of y − loss of z) at the places of the batch; losses that are not there are
// 0, scales of agents 1.
extern "C" __global__ void psi_directions(
    float* dx, const Place* batch, const float* psi, const big* starts, const float* of_y, const float* of_z,
    const float* scales, int S, int train, int total
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total || i % S >= train) return;
    Place p = batch[i];
    if (p.own < 0) return;
    big at = starts[i / S] + p.own;
    float s = 1 / (1 + expf(-psi[at]));
    float scale = scales ? scales[i / S] : 1;
    dx[at] = scale * p.factor * s * (1 - s) * ((of_y ? of_y[i] : 0) - of_z[i]);
}

// Pixels as numbers, with the 1 of the bias behind them where the line has room.
extern "C" __global__ void load_images(
    float* x, const unsigned char* images, const Place* batch, const float* scale, const float* shift,
    int pixels, int line
) {
    const unsigned char* image = images + (big)batch[blockIdx.x].sample * pixels;
    float* to = x + (big)blockIdx.x * line;
    for (int p = threadIdx.x; p < pixels; p += blockDim.x) to[p] = image[p] * scale[p] + shift[p];
    if (threadIdx.x == 0 && pixels < line) to[pixels] = 1;
}

// Places of each agent that a pass uses: `used` of S; row r is place r % used of agent r / used.
extern "C" __global__ void relu_rows(float* hidden, int units, int line, int used, int S) {
    big row = (big)(blockIdx.x / used) * S + blockIdx.x % used;
    float* at = hidden + row * line;
    for (int u = threadIdx.x; u < units; u += blockDim.x) at[u] = fmaxf(at[u], 0.f);
    if (threadIdx.x == 0) at[units] = 1;
}

extern "C" __global__ void mask_rows(float* back, const float* hidden, int units, int line, int used, int S) {
    big row = (big)(blockIdx.x / used) * S + blockIdx.x % used;
    for (int u = threadIdx.x; u < units; u += blockDim.x)
        if (hidden[row * line + u] <= 0) back[row * units + u] = 0;
}

// From scores to losses, and to weight · (probability − 1 at the label) in place of the scores; also whether
// the guess is right.
extern "C" __global__ void entropy(
    float* scores, const Place* batch, const float* weights, float* losses, int* right, int classes, int line,
    int used, int S, int rows
) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    big row = (big)(r / used) * S + r % used;
    float* s = scores + row * line;
    int label = batch[row].label, best = 0;
    for (int c = 1; c < classes; c++) if (s[c] > s[best]) best = c;
    float top = s[best], sum = 0;
    for (int c = 0; c < classes; c++) sum += expf(s[c] - top);
    losses[row] = logf(sum) - (s[label] - top);
    right[row] = best == label;
    float w = weights[row];
    for (int c = 0; c < classes; c++) s[c] = w * (expf(s[c] - top) / sum - (c == label));
}

// Tangents of hidden units: none where the unit is off, none of the bias.
extern "C" __global__ void mask_tangents(float* tangents, const float* hidden, int units, int line) {
    big at = (big)blockIdx.x * line;
    for (int u = threadIdx.x; u < units; u += blockDim.x)
        if (hidden[at + u] <= 0) tangents[at + u] = 0;
    if (threadIdx.x == 0) tangents[at + units] = 0;
}

// From scores and their tangents to what goes back. At training samples: weight · (probability − 1 at the
// label) and its tangent, and the loss's. At the others, which count against the tangents: nothing, and
// −weight · (probability − 1 at the label).
extern "C" __global__ void tangent_entropy(
    float* scores, float* tangents, const Place* batch, const float* weights, float* losses, int classes,
    int line, int S, int train, int rows
) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float *s = scores + (big)row * line, *t = tangents + (big)row * line;
    int label = batch[row].label;
    float top = s[0], sum = 0, mean = 0, w = weights[row];
    for (int c = 1; c < classes; c++) top = fmaxf(top, s[c]);
    for (int c = 0; c < classes; c++) { s[c] = expf(s[c] - top); sum += s[c]; mean += s[c] * t[c]; }
    mean /= sum;
    bool trained = row % S < train;
    losses[row] = trained ? mean - t[label] : 0;
    for (int c = 0; c < classes; c++) {
        float p = s[c] / sum, back = w * (p - (c == label));
        s[c] = trained ? back : 0;
        t[c] = trained ? w * p * (t[c] - mean) : -back;
    }
}
