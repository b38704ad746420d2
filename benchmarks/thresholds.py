"""What correct conversions reach, and what known faults reach: the numbers behind the thresholds of ``convert.gate``.

    python benchmarks/thresholds.py > table.md

Each network is random but scaled like a trained one (batch norm calibrated), runs in float32, and is compared with

- *correct* conversions: ONNX Runtime with all optimisations, and the same network with every operator's result rounded
  to float16 or bfloat16 (weights too), with matmul and convolution inputs rounded to TF32 (what "fp32" means on cards
  with a fast path), or quantised to int8 (weights per channel, activations per tensor);
- *faults*, at float32: a doubled output, one row of 64 inverted, a lost bias, a wrong epsilon, …
"""

from __future__ import annotations

import copy
import io
import itertools
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from convert.compare import compare_outputs, fold
from convert.metrics import OutputMetrics

SAMPLES = 8
Arrays = list[np.ndarray]


# ------------------------------------------------------------------------------------------------------------- networks


class Cnn(nn.Module):
    """Three strided convolutions with batch norm; gives logits, features and the class."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 16, 32, 64]
        self.blocks = nn.Sequential(
            *[
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in itertools.pairwise(widths)
            ]
        )
        self.head = nn.Linear(64, 100)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.blocks(x)
        logits = self.head(features.mean((2, 3)))
        return logits, features, logits.argmax(-1)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.b = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


class ResNet(nn.Module):
    """Residual blocks; gives logits, features and the class."""

    def __init__(self, depth: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.blocks = nn.Sequential(*[Block(32) for _ in range(depth)])
        self.head = nn.Linear(32, 100)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.blocks(self.stem(x))
        logits = self.head(features.mean((2, 3)))
        return logits, features, logits.argmax(-1)


class Detector(nn.Module):
    """A text detector's head: a probability map that is nearly zero almost everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.body = ResNet(3)
        self.map = nn.ConvTranspose2d(32, 1, 2, 2)
        nn.init.constant_(self.map.bias, -9.0)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.sigmoid(self.map(self.body.blocks(self.body.stem(x)))),)


class Attention(nn.Module):
    """Self-attention with four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = 4, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Transformer(nn.Module):
    """A stack of layers; gives logits for each position, hidden states and classes."""

    def __init__(self, depth: int = 4, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.layers = nn.Sequential(*[Layer(width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 200)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.norm(self.layers(self.embed(x)))
        logits = self.head(hidden)
        return logits, hidden, logits.argmax(-1)


class Lstm(nn.Module):
    """Written out, so that the rounding reaches every step."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.head = nn.Linear(16 + 48, 4 * 48), nn.Linear(48, 40)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = c = torch.zeros(x.shape[0], 48)
        steps = []
        for step in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, step], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            steps.append(h)
        hidden = torch.stack(steps, 1)
        logits = self.head(hidden)
        return logits.log_softmax(-1), hidden


class Mlp(nn.Module):
    """Three linear layers; gives logits and probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = self.layers(x)
        return logits, logits.softmax(-1)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (Cnn, (2, 3, 64, 64)),
    "resnet": (ResNet, (2, 3, 64, 64)),
    "resnet, 50 convolutions": (lambda: ResNet(25), (1, 3, 64, 64)),
    "detector": (Detector, (1, 3, 64, 64)),
    "transformer": (Transformer, (2, 24, 16)),
    "transformer, 24 layers": (lambda: Transformer(24), (1, 24, 16)),
    "lstm": (Lstm, (2, 40, 16)),
    "mlp": (Mlp, (8, 64)),
}


def network(name: str) -> tuple[nn.Module, list[torch.Tensor]]:
    """A network with calibrated batch norm, and its samples."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    model = build().train()
    with torch.no_grad():
        for _ in range(20):
            model(torch.randn(16, *shape[1:]))
    return model.eval(), [torch.randn(shape) for _ in range(SAMPLES)]


# -------------------------------------------------------------------------------------------------- correct conversions


class Rounded(TorchDispatchMode):
    """Every operator's result rounded to a narrower type, computed in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return torch.utils._pytree.tree_map(self._round, func(*args, **(kwargs or {})))

    def _round(self, x: object) -> object:
        return x.to(self.dtype).float() if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x


MULTIPLYING = ("convolution", "addmm", "mm", "bmm")


class NarrowInputs(TorchDispatchMode):
    """The inputs of matrix products and convolutions made narrower; the second one is the weight."""

    def __init__(self, narrow: Callable[[torch.Tensor, bool], torch.Tensor]) -> None:
        super().__init__()
        self.narrow = narrow

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        if name in MULTIPLYING:
            first = 1 if name == "addmm" else 0
            args = list(args)
            args[first], args[first + 1] = self.narrow(args[first], False), self.narrow(args[first + 1], name != "bmm")
        return func(*args, **(kwargs or {}))


def tf32(x: torch.Tensor, _: bool) -> torch.Tensor:
    """Rounded to ten bits of mantissa."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def int8(x: torch.Tensor, weight: bool) -> torch.Tensor:
    """Quantised symmetrically: a weight per channel, an activation per tensor."""
    axes = tuple(range(1, x.ndim)) if weight and x.ndim == 4 else (0,) if weight else tuple(range(x.ndim))
    scale = x.abs().amax(axes, keepdim=True).clamp(min=1e-12) / 127
    return (x / scale).round().clamp(-127, 127) * scale


def run(model: nn.Module, samples: list[torch.Tensor], mode: TorchDispatchMode | None = None) -> list[Arrays]:
    """The outputs for each sample."""
    outputs = []
    for sample in samples:
        with torch.no_grad():
            if mode is None:
                made = model(sample)
            else:
                with mode:
                    made = model(sample)
        outputs.append([tensor.numpy() for tensor in made])
    return outputs


def rounded(model: nn.Module, samples: list[torch.Tensor], dtype: torch.dtype) -> list[Arrays]:
    """The outputs with weights, inputs and every operator's result rounded."""
    narrow = copy.deepcopy(model).to(dtype).float()
    return run(narrow, [s.to(dtype).float() for s in samples], Rounded(dtype))


def in_onnxruntime(model: nn.Module, samples: list[torch.Tensor]) -> list[Arrays]:
    """The outputs of the exported graph."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (samples[0],), stream, opset_version=17, dynamo=False, input_names=["x"])
    session = onnxruntime.InferenceSession(stream.getvalue(), providers=["CPUExecutionProvider"])
    return [session.run(None, {"x": sample.numpy()}) for sample in samples]


def correct(model: nn.Module, samples: list[torch.Tensor]) -> Iterator[tuple[str, str, list[Arrays]]]:
    """(precision, how, outputs) of each correct conversion."""
    yield "fp32", "ONNX Runtime", in_onnxruntime(model, samples)
    yield "fp32", "TF32 products", run(model, samples, NarrowInputs(tf32))
    yield "fp16", "rounded to float16", rounded(model, samples, torch.float16)
    yield "bf16", "rounded to bfloat16", rounded(model, samples, torch.bfloat16)
    yield "int8", "int8 products", run(model, samples, NarrowInputs(int8))


# --------------------------------------------------------------------------------------------------------------- faults


def changed(model: nn.Module, change: Callable[[nn.Module], object], wanted: type | tuple[type, ...]) -> nn.Module:
    """A copy whose middle module of a kind is changed."""
    copied = copy.deepcopy(model)
    found = [m for m in copied.modules() if isinstance(m, wanted)]
    if found:
        change(found[len(found) // 2])
    return copied


def _drop_bias(m: nn.Module) -> None:
    m.bias = nn.Parameter(torch.zeros_like(m.bias))  # type: ignore[arg-type]


def _eps(m: nn.Module) -> None:
    m.eps = 1e-3  # type: ignore[assignment]


def _flip(m: nn.Module) -> None:
    m.weight = nn.Parameter(m.weight.flip(-1))  # type: ignore[operator]


def _zero_channel(m: nn.Module) -> None:
    with torch.no_grad():
        m.weight[0] = 0.0  # type: ignore[index]


def faults(model: nn.Module, samples: list[torch.Tensor], good: list[Arrays]) -> Iterator[tuple[str, list[Arrays]]]:
    """(fault, outputs), at float32."""

    def floats(change: Callable[[np.ndarray], np.ndarray]) -> list[Arrays]:
        return [[change(a) if a.dtype.kind == "f" else a for a in sample] for sample in good]

    yield "output x 1.01", floats(lambda a: a * np.float32(1.01))
    yield "output x 2", floats(lambda a: a * np.float32(2))
    for word, change, kind in (
        ("one bias lost", _drop_bias, (nn.Linear, nn.ConvTranspose2d)),
        ("one epsilon 1e-3 for 1e-5", _eps, (nn.BatchNorm2d, nn.LayerNorm)),
        ("one weight mirrored", _flip, (nn.Linear, nn.Conv2d)),
        ("one output channel of a weight zero", _zero_channel, (nn.Linear, nn.Conv2d)),
    ):
        if any(isinstance(m, kind) and getattr(m, "bias", None) is not None for m in model.modules()):
            yield word, run(changed(model, change, kind), samples)


def rows_fault() -> tuple[list[Arrays], list[Arrays]]:
    """A batch of 64 with one item inverted."""
    good = np.random.default_rng(0).standard_normal((64, 128)).astype("float32")
    bad = good.copy()
    bad[17] = -bad[17]
    return [[good]], [[bad]]


def masked_fault() -> tuple[list[Arrays], list[Arrays]]:
    """Attention with one fully masked row, whose result is 0, against the mean that a finite mask value gives."""
    q = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4, 8, 16)).astype("float32"))
    good = F.scaled_dot_product_attention(q, q, q)
    bad = good.clone()
    good[0, 0, 0], bad[0, 0, 0] = 0.0, q[0, 0].mean(0)
    return [[good.numpy()]], [[bad.numpy()]]


# ---------------------------------------------------------------------------------------------------------------- table


def compared(good: list[Arrays], other: list[Arrays]) -> tuple[OutputMetrics, ...]:
    """The metrics over all samples."""
    samples = (compare_outputs(a, b, ["logits", "features", "index"]) for a, b in zip(good, other, strict=True))
    return fold(samples, inputs_differ=True).outputs


def row(label: tuple[str, ...], m: OutputMetrics) -> str:
    """One line of a table."""
    if m.exact_match is not None:
        cells = ["", "", "", "", "", f"{m.exact_match:.4f}"]
    else:
        cosines = [f"{1 - c:.1e}" if c is not None else "" for c in (m.cosine, m.worst_row_cosine)]
        off = "" if m.norm_ratio is None else f"{abs(m.norm_ratio - 1):.1e}"
        cells = [*cosines, f"{m.rel_l2:.1e}", off, f"{m.max_abs:.1e}", ""]
    return "| " + " | ".join([*label, *cells]) + " |"


HEADER = "1 - cosine | 1 - worst row | rel_l2 | norm_ratio off 1 | max_abs | exact_match |"


def worst(found: list[tuple[str, str, OutputMetrics]]) -> Iterator[str]:
    """One line for each way of converting: the worst of every metric over networks, outputs and samples."""
    for label in dict.fromkeys((precision, how) for precision, how, _ in found):
        metrics = [m for precision, how, m in found if (precision, how) == label]
        floats = [m for m in metrics if m.exact_match is None]
        exact = min(m.exact_match for m in metrics if m.exact_match is not None)
        cells = [
            f"{1 - min(m.cosine for m in floats if m.cosine is not None):.1e}",
            f"{1 - min(m.worst_row_cosine for m in floats if m.worst_row_cosine is not None):.1e}",
            f"{max(m.rel_l2 for m in floats if m.rel_l2 is not None):.1e}",
            f"{max(abs(m.norm_ratio - 1) for m in floats if m.norm_ratio is not None):.1e}",
            f"{max(m.max_abs for m in floats if m.max_abs is not None):.1e}",
            f"{exact:.4f}",
        ]
        yield "| " + " | ".join([*label, *cells]) + " |"


def table(first: str, lines: list[str]) -> None:
    """Print a table under its heading."""
    columns = first.count("|") + HEADER.count("|")
    print(f"\n| {first} {HEADER}\n|{'---|' * columns}")
    print("\n".join(lines))


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    right, wrong, found = [], [], []
    for name in NETWORKS:
        model, samples = network(name)
        good = run(model, samples)
        for precision, how, other in correct(model, samples):
            metrics = compared(good, other)
            found += [(precision, how, m) for m in metrics]
            right += [row((precision, name, how, str(i)), m) for i, m in enumerate(metrics)]
        for fault, other in faults(model, samples, good):
            wrong += [row((fault, name, str(i)), m) for i, m in enumerate(compared(good, other))]
    for fault, pair in (("one row of 64 inverted", rows_fault()), ("a masked row not zero", masked_fault())):
        wrong.append(row((fault, "", "0"), compared(*pair)[0]))
    table("precision | how |", list(worst(found)))
    table("precision | network | how | output |", sorted(right, key=lambda line: line.split(" | ")[0]))
    table("fault | network | output |", sorted(wrong))


if __name__ == "__main__":
    main()
