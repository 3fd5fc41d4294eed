"""The device engine: how far it is from exact beside bethe, and what a step asks of a device.

There is no accelerator here. Distances are measured on the CPU, in single precision. What a step
asks is counted with a pretended device: tensors that call themselves its own and compute on the
CPU, while each operation on them, each copy to or from them and each look of the host at their
numbers is counted. Compiled kernels are counted where Inductor calls them, as it makes them for
CPUs; for a GPU it may join them a little differently. They are not built: the calls are all there
is to count.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map_only

from bagwise import Bags, bag_posterior, cc_loss
from bagwise.autograd import device_engine, logits, operator
from bagwise.posterior import ENGINES, Posterior
from common import generated, table

SIZES = {(10, 8): 100, (10, 16): 100, (10, 32): 12, (3, 16): 100, (3, 64): 30, (30, 16): 40}
STRENGTHS = (0.3, 2.0, 4.0, 8.0)
AWAY = torch.device("meta")  # the pretended device
BATCHES = {
    "256 bags of 16, 10 classes": ([16] * 256, 10),
    "64 bags of 64, 10 classes": ([64] * 64, 10),
    "bags of 4 to 67, 10 classes": (list(range(4, 68)), 10),
}


WAYS: dict[str, dict[str, Any]] = {
    "auto on the host": {"max_states": 2**16},
    "device, not compiled": {"engine": "device", "compiled": False},
}
DISTANCES: dict[str, dict[str, Any]] = {
    "bethe": {"engine": "bethe"},
    "device, no lattice": {"engine": "device", "max_states": 0},
    "device": {"engine": "device"},
}
COUNTED = ("launches", "copies down", "copies up", "waits")
LIBRARY = ("aten::sort", "aten::linalg_cholesky_ex", "aten::linalg_solve_triangular", "aten::cat")


OF_DISTANCES = """There is no accelerator here: nothing of this was run on one. Mean L1 distance of
an instance's weights to the exact ones, on the CPU, in single precision; log-probabilities
s onehot(y) + sqrt(s) N(0, 1), normalized. `no lattice`: all bags by belief propagation. The last
column is the share of bags that `device` computes exactly."""
OF_LAUNCHES = """What a step of `cc_loss`, forward and backward, asks of a device, of a batch whose
bags are new to it, counted with a pretended device: operations that launch something, copies in
either direction, and how often the host waits. The copy up of `device` is that of the bags; with
`Bags.to` beside the inputs and pinned memory, the step has none. `compiled`: kernels that Inductor
makes of the engine, for CPUs, functions of libraries, and the operations of the loss."""


@ENGINES.register("even")
def even(log_probs: torch.Tensor, bags: Bags) -> Posterior[torch.Tensor]:
    """No work: what is left of a step is that of the loss."""
    return Posterior(log_probs.sum(1)[: len(bags)], log_probs.detach())


class AwayTensor(torch.Tensor):
    """A tensor of the pretended device; `here` has its numbers."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> AwayTensor:  # noqa: D102
        made = torch.Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), dtype=here.dtype, device=AWAY
        )
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Only `Counted` computes with it."""
        raise RuntimeError(f"{function} of a pretended tensor is not counted.")


class Counted(TorchDispatchMode):
    """Computes with tensors of the pretended device, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        is_away = tree_any(lambda x: isinstance(x, AwayTensor), (args, kwargs))
        target = kwargs.get("device")
        args, kwargs = tree_map_only(AwayTensor, lambda x: x.here, (args, kwargs))
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        found = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        if name == "_to_copy" and target is not None and (target == AWAY) != is_away:
            self.counts["copies up" if target == AWAY else "copies down"] += 1
            self.counts["waits"] += not kwargs.get("non_blocking", False)
            is_away = target == AWAY
        elif name == "_local_scalar_dense":
            self.counts["waits"] += is_away
        elif is_away or target == AWAY:
            self.counts["launches"] += not function.is_view
            is_away = True
        return tree_map_only(torch.Tensor, AwayTensor, found) if is_away else found


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Steps as they are where nobody counts: a mode that looks on is taken for a tracer."""
    with contextlib.ExitStack() as stack:
        for module in (operator, device_engine, logits):
            stack.enter_context(patch.object(module, "is_traced", lambda tensor: False))
        yield


def step(logits_: torch.Tensor, bags: Bags, **options: Any) -> None:
    """The loss of a batch that has not been seen before, and its gradient."""
    leaf = logits_.detach().requires_grad_()
    cc_loss(leaf, bags.select(range(len(bags))), **options).backward()


def counts_of(log_probs: torch.Tensor, bags: Bags, **options: Any) -> Counter[str]:
    """What a step asks of the pretended device."""
    with unseen(), Counted() as counted:
        step(AwayTensor(log_probs), bags, **options)
    return counted.counts


def compiled_launches(log_probs: torch.Tensor, bags: Bags) -> tuple[int, int]:
    """Calls of Inductor's kernels in a forward pass of the engine, and of library functions."""
    from torch._inductor import config, metrics
    from torch._inductor.async_compile import AsyncCompile

    kernels: Counter[str] = Counter()
    calls: Counter[str] = Counter()

    def not_built(*given: Any) -> None:
        for tensor in given:
            if isinstance(tensor, torch.Tensor):
                tensor.zero_()  # an index must not point anywhere

    @cache
    def compiled(solve: Callable[..., Any]) -> Callable[..., Any]:
        run = torch.compile(solve, dynamic=True)

        def counted(*given: Any) -> Any:
            before = metrics.generated_kernel_count
            found = run(*given)
            kernels[solve.__name__] += metrics.generated_kernel_count - before
            calls[solve.__name__] += 1
            return found

        return counted

    torch.compiler.reset()
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with (
        patch.object(AsyncCompile, "cpp_pybinding", lambda *_, **__: not_built),
        patch.object(device_engine, "_compiled", compiled),
        config.patch(force_disable_caches=True),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        bag_posterior(log_probs, bags, "device", compiled=True)
        found = sum(kernels[name] * calls[name] for name in calls)
        with profile:
            bag_posterior(log_probs, bags, "device", compiled=True)
    torch.compiler.reset()
    library = sum(e.count for e in profile.key_averages() if e.key in LIBRARY)
    return found, library


def launches(tiny: bool) -> Iterator[tuple[str, ...]]:
    """A batch and an engine: launches, copies down and up, and waits of a step."""
    torch.manual_seed(0)
    for name, (sizes, C) in list(BATCHES.items())[-1:] if tiny else BATCHES.items():
        log_probs, bags = generated(sizes, C)
        for engine, options in WAYS.items():
            counts = counts_of(log_probs, bags, **options)
            yield name, engine, *(str(counts[key]) for key in COUNTED)
        if not tiny:
            kernels, library = compiled_launches(log_probs, bags)
            others = counts_of(log_probs, bags, engine="even")["launches"]
            of_step = f"{kernels + library + others} ({kernels} + {library} + {others})"
            yield name, "device, compiled", of_step, "0", "1", "1"


def distances(tiny: bool) -> Iterator[tuple[str, ...]]:
    """C, K, s, the mean distances of bethe and of the device engine without and with lattices, and
    the share of bags that it computes exactly.
    """
    torch.manual_seed(0)
    cells = [(C, K, s) for C, K in SIZES for s in STRENGTHS]
    for C, K, s in cells[:1] if tiny else cells:
        log_probs, bags = generated([K] * (2 if tiny else SIZES[C, K]), C, s)
        exact = bag_posterior(log_probs.double(), bags, "exact", max_states=2**27).weights
        found = [bag_posterior(log_probs, bags, **options) for options in DISTANCES.values()]
        off = [(post.weights - exact).abs().sum(1).mean().item() for post in found]
        share = found[-1].engine.count("exact") / len(bags)
        shown = [f"{d:.4f}" for d in off[:2]]
        yield str(C), str(K), f"{s:g}", *shown, f"{off[2]:.1e}", f"{share:.0%}"


def section(pictures: Path, tiny: bool) -> str:
    """The part of docs/benchmarks.md."""
    return (
        f"## The device engine\n\n{OF_DISTANCES}\n\n"
        + table(("C", "K", "s", *DISTANCES, "exact"), distances(tiny))
        + f"\n{OF_LAUNCHES}\n\n"
        + table(("batch", "engine", *COUNTED), launches(tiny))
    )


def main() -> None:
    print(section(Path(), tiny=False))


if __name__ == "__main__":
    main()
