"""The device engine: its answers on the CPU, and that it asks a device for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bagwise import (
    Bags,
    DiscreteLaplace,
    InputError,
    bag_posterior,
    cc_loss,
    dllp_loss,
    pll_cc_loss,
    pll_loss,
    rc_loss,
)
from bagwise.autograd.device_bags import on_device
from bagwise.autograd.device_engine import _computed
from oracles import enumerate_bags, informed_bags, random_bags

CPU, META = torch.device("cpu"), torch.device("meta")
KINDS = (torch.float32, torch.float64)
# Mean L1 distances of `benchmarks/device.py`, which bethe has too, and a third more.
DISTANCES = {
    (16, 0.3): 0.002,
    (16, 2.0): 0.009,
    (16, 8.0): 0.047,
    (32, 0.3): 0.001,
    (32, 2.0): 0.004,
    (32, 8.0): 0.05,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0.3, 2.0, 8.0])
def test_small_bags_have_the_posterior_of_enumeration(kind: torch.dtype, spread: float) -> None:
    log_probs, bags = random_bags(0, [3, 1, 7, 8, 2, 5, 6], 4, spread)
    post = bag_posterior(log_probs.to(kind), bags, "device")
    log_likelihood, weights = enumerate_bags(log_probs.to(kind), bags)
    assert post.engine == ["exact"] * 7
    assert post.weights.dtype == kind
    np.testing.assert_allclose(post.weights.double(), weights, atol=1e-6)
    np.testing.assert_allclose(post.log_likelihood.double(), log_likelihood, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("s", [0.3, 8.0, 24.0])
def test_bags_of_sixteen_have_the_posterior_of_the_exact_engine(
    kind: torch.dtype, s: float
) -> None:
    log_probs, bags = informed_bags(1, 16, 20, s)
    exact = bag_posterior(log_probs, bags, "exact")
    post = bag_posterior(log_probs.to(kind), bags, "device")
    assert set(post.engine) == {"exact"}
    atol = 1e-6 if kind == torch.float32 else 1e-12
    torch.testing.assert_close(post.weights.double(), exact.weights, atol=atol, rtol=0)
    torch.testing.assert_close(
        post.log_likelihood.double(), exact.log_likelihood, atol=10 * atol, rtol=0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_two_classes_are_exact_in_bags_of_any_size(kind: torch.dtype) -> None:
    log_probs, bags = random_bags(2, [2, 50, 700], 2)
    exact = bag_posterior(log_probs, bags, "exact")
    post = bag_posterior(log_probs.to(kind), bags, "device", max_states=0)
    atol = 1e-5 if kind == torch.float32 else 1e-7
    torch.testing.assert_close(post.weights.double(), exact.weights, atol=atol, rtol=0)
    torch.testing.assert_close(
        post.log_likelihood.double(), exact.log_likelihood, atol=atol, rtol=1e-6
    )


@pytest.mark.parametrize(("K", "s"), DISTANCES)
def test_belief_propagation_is_as_near_to_exact_as_that_of_bethe(K: int, s: float) -> None:
    log_probs, bags = informed_bags(0, K, 64 if K == 16 else 6, s)
    exact = bag_posterior(log_probs, bags, "exact").weights
    post = bag_posterior(log_probs.float(), bags, "device", max_states=0)
    assert (post.weights - exact).abs().sum(1).mean() <= DISTANCES[K, s]
    assert set(post.engine) == {"device"}


@pytest.mark.parametrize("s", [0.3, 2.0, 8.0, 24.0])
def test_single_precision_is_enough_for_belief_propagation(s: float) -> None:
    log_probs, bags = informed_bags(3, 40, 6, s)
    single = bag_posterior(log_probs.float(), bags, "device", max_states=0)
    double = bag_posterior(log_probs, bags, "device", max_states=0)
    torch.testing.assert_close(single.weights.double(), double.weights, atol=1e-3, rtol=0)
    assert (single.weights - double.weights).abs().mean() < 1e-5
    torch.testing.assert_close(
        single.log_likelihood.double(), double.log_likelihood, atol=2e-3, rtol=1e-5
    )


def test_a_bag_has_the_same_posterior_alone_and_in_a_ragged_batch() -> None:
    log_probs, bags = random_bags(4, [5, 90, 1, 33, 12, 60], 6)
    together = bag_posterior(log_probs, bags, "device")
    for b in range(len(bags)):
        rows = torch.from_numpy(bags.rows([b]))
        alone = bag_posterior(log_probs[rows], bags.select([b]), "device")
        torch.testing.assert_close(together.weights[rows], alone.weights, atol=1e-6, rtol=0)
        torch.testing.assert_close(
            together.log_likelihood[b], alone.log_likelihood[0], atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_rows_sum_to_one_and_columns_to_the_counts(spread: float) -> None:
    log_probs, bags = random_bags(5, [40, 10, 300, 64], 8, spread)
    weights = bag_posterior(log_probs, bags, "device").weights
    torch.testing.assert_close(weights.sum(1), torch.ones(414, dtype=torch.float64))
    columns = np.add.reduceat(weights.numpy(), bags.offsets[:-1])
    np.testing.assert_allclose(columns, bags.counts, atol=0.05)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_weights_are_numbers_where_nothing_of_a_class_is_left(kind: torch.dtype) -> None:
    log_probs, bags = random_bags(5, [60, 200], 12, spread=1e5)
    weights = bag_posterior(log_probs.to(kind), bags, "device").weights
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(1), torch.ones(260, dtype=kind))


def test_a_biased_classifier_changes_nothing() -> None:
    log_probs, bags = random_bags(6, [40, 12], 4)
    bias = torch.tensor([30.0, -20.0, 0.0, 5.0])
    one, other = (bag_posterior(x, bags, "device").weights for x in (log_probs, log_probs + bias))
    torch.testing.assert_close(one, other, atol=1e-2, rtol=0)
    assert (one - other).abs().mean() < 1e-4


@pytest.mark.parametrize("scale", [30.0, 300.0, 1000.0])
def test_a_classifier_whose_sure_answers_are_wrong_has_the_posterior_of_bethe(
    scale: float,
) -> None:
    log_probs, bags = random_bags(13, [12, 20] * 10, 4, scale)
    exact, bethe, post = (
        bag_posterior(log_probs, bags, name, **options)
        for name, options in (("exact", {}), ("bethe", {}), ("device", {"max_states": 0}))
    )
    off, ours = ((x.weights - exact.weights).abs().sum(1).mean() for x in (bethe, post))
    assert ours <= off + 1e-3
    torch.testing.assert_close(post.log_likelihood, exact.log_likelihood, rtol=0.01, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_states", [0, 2**14])
@pytest.mark.parametrize("scale", [1e4, 1e12, 1e30])
def test_numbers_of_any_size_have_weights_whose_rows_sum_to_one(
    scale: float, max_states: int, kind: torch.dtype
) -> None:
    log_probs, bags = random_bags(14, [12, 20, 1, 2] * 10, 4, scale)
    post = bag_posterior(log_probs.to(kind), bags, "device", max_states=max_states)
    torch.testing.assert_close(post.weights.sum(1), torch.ones(350, dtype=kind))
    assert post.log_likelihood.isfinite().all()


def test_the_gradient_is_the_weights() -> None:
    log_probs, bags = random_bags(7, [4, 50, 9], 5)
    leaf = log_probs.float().requires_grad_()
    post = bag_posterior(leaf, bags, "device")
    of_bags = torch.tensor([1.0, -2.0, 0.5])
    (gradient,) = torch.autograd.grad(post.log_likelihood @ of_bags, leaf)
    expected = of_bags.repeat_interleave(torch.tensor(bags.sizes))[:, None] * post.weights
    assert torch.equal(gradient, expected)
    assert not post.weights.requires_grad


def test_weighted_rows_are_those_written_out() -> None:
    log_probs, _ = random_bags(8, [6, 9], 3)
    bags = Bags([6, 9], [[6, 5, 4], [10, 12, 3]], weights=[1, 2, 3, 4, 3, 2] + [1, 4] * 4 + [5])
    leaf = log_probs.requires_grad_()
    post = bag_posterior(leaf, bags, "device")
    copies = torch.tensor(bags.copies)
    written = bag_posterior(
        log_probs.repeat_interleave(copies, 0), bags.written_out(), "device", max_states=0
    )
    torch.testing.assert_close(post.log_likelihood, written.log_likelihood)
    weights = post.weights.repeat_interleave(copies, 0)
    torch.testing.assert_close(weights, written.weights, atol=1e-6, rtol=0)
    (gradient,) = torch.autograd.grad(post.log_likelihood.sum(), leaf)
    torch.testing.assert_close(gradient, copies[:, None] * post.weights)


def test_known_labels_keep_their_instances() -> None:
    log_probs, bags = random_bags(9, [6, 50], 3)
    labels = torch.full((56,), -1)
    labels[0] = int(bags.counts[0].argmax())
    labels[30] = int(bags.counts[1].argmax())
    known = bags.with_labels(labels.numpy())
    exact, post = (bag_posterior(log_probs, known, engine) for engine in ("exact", "device"))
    torch.testing.assert_close(post.weights[:6], exact.weights[:6], atol=1e-9, rtol=0)
    assert (post.weights - exact.weights).abs().mean() < 1e-3
    assert torch.equal(post.weights[30], exact.weights[30])


def test_counts_that_are_not_exact_are_refused_and_auto_takes_them() -> None:
    bags = Bags.from_noisy_counts([[1, 1], [3, 2]], [2, 5], DiscreteLaplace(1))
    with pytest.raises(InputError, match=r"of bag 0 are not known exactly.*use engine=\"auto\""):
        bag_posterior(torch.zeros(7, 2), bags, "device")


def test_other_options_are_refused() -> None:
    with pytest.raises(InputError, match="max_states is -1"):
        bag_posterior(torch.zeros(2, 2), Bags([2], [[1, 1]]), "device", max_states=-1)
    with pytest.raises(InputError, match="compiled is 3"):
        bag_posterior(torch.zeros(2, 2), Bags([2], [[1, 1]]), "device", compiled=3)


def test_half_precision_under_autocast_becomes_single() -> None:
    log_probs, bags = random_bags(10, [40, 6], 4)
    leaf = log_probs.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        post = bag_posterior(leaf, bags, "device")
    expected = bag_posterior(log_probs.bfloat16().float(), bags, "device")
    assert torch.equal(post.weights, expected.weights)
    post.log_likelihood.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.bfloat16


def test_transforms_and_second_derivatives() -> None:
    log_probs, bags = random_bags(11, [40, 6], 4)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cc_loss(x, bags, "device")

    leaf = log_probs.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    assert torch.equal(torch.func.grad(loss)(log_probs), expected)
    several = torch.stack([log_probs, -log_probs])
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(loss))(several),
        torch.stack([torch.func.grad(loss)(x) for x in several]),
    )
    with pytest.raises(RuntimeError, match=r"'device' has no second derivative.*engine=\"exact\""):
        torch.func.jacrev(torch.func.grad(loss))(log_probs)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of PyTorch's own
def test_what_it_cannot_do_is_said_in_words() -> None:
    log_probs, bags = random_bags(12, [4, 3], 3)
    with pytest.raises(RuntimeError, match=r"no forward-mode derivative.*use reverse mode"):
        torch.func.jacfwd(lambda x: cc_loss(x, bags, "device"))(log_probs)
    with pytest.raises(InputError, match=r"numbers cannot be read.*make the bags outside"):
        torch.vmap(lambda x, n: cc_loss(x, Bags([2], n[None])))(
            torch.zeros(3, 2, 2), torch.ones(3, 2, dtype=torch.long)
        )


class Recorded(TorchDispatchMode):
    """The operations that run, and those among them that change the device."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.moves: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = function(*args, **(kwargs or {}))
        name = str(function)
        self.calls[name] += 1
        before, after = (
            {x.device for x in tree_leaves(part) if isinstance(x, torch.Tensor)}
            for part in ((args, kwargs), found)
        )
        if before and after - before:
            self.moves.append(name)
        return found


WAITS = ("_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "unique", "masked_select")


def batch(device: torch.device) -> tuple[torch.Tensor, Bags]:
    """Logits of 1500 instances, in lattices and beyond."""
    bags = Bags.from_labels(np.arange(1500) % 5, [12] * 25 + [60] * 20)
    return torch.zeros(1500, 5, device=device, requires_grad=True), bags


def test_the_engine_asks_the_device_for_nothing() -> None:
    # A tensor of the meta device has no numbers: whatever looks at them, or at shapes that follow
    # from them, or copies them to the host, is an error.
    logits, bags = batch(META)
    known = on_device(bags, META)
    assert known.large
    assert known.small
    with Recorded() as recorded:
        log_likelihood, weights = _computed(logits, *known.tensors[1:], compiled=False)
    assert (log_likelihood.shape, weights.shape) == ((45,), (1500, 5))
    assert recorded.moves == []
    assert not [name for name in recorded.calls if any(wait in name for wait in WAITS)]
    assert sum(recorded.calls.values()) > 100


STORED = torch.zeros(1500, 5, device=META)
STEPS: dict[str, Callable[[torch.Tensor, Bags], torch.Tensor]] = {
    "cc": cc_loss,
    "cc, by bag": lambda logits, bags: cc_loss(logits, bags, reduction="none").sum(),
    "rc": lambda logits, bags: rc_loss(logits, bags, STORED),
    "dllp": dllp_loss,
    "pll": lambda logits, bags: pll_loss(logits, bags, STORED),
    "pll_cc": pll_cc_loss,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_on_a_device_copies_nothing_but_the_bags_and_those_once(name: str) -> None:
    logits, bags = batch(META)
    for expected in (["aten._to_copy.default"], []):
        with Recorded() as recorded:
            STEPS[name](logits, bags).backward()
        assert recorded.calls["bagwise.device_posterior.default"] == (name[:2] in ("cc", "rc"))
        assert recorded.moves == expected
        assert not [name for name in recorded.calls if any(wait in name for wait in WAITS)]


def test_auto_takes_the_engine_on_a_device_from_a_thousand_instances_on() -> None:
    def engine_of(n: int, device: torch.device, bags: Bags | None = None) -> list[str]:
        logits = torch.zeros(n, 4, device=device)
        bags = Bags.from_labels(np.arange(n) % 4, [100] * (n // 100)) if bags is None else bags
        return bag_posterior(logits, bags).engine

    assert engine_of(1000, META) == ["device"] * 10
    assert engine_of(1000, CPU) != ["device"] * 10
    with Recorded() as recorded:
        bag_posterior(torch.zeros(900, 4, device=META), Bags([900], [[225] * 4]))
    assert recorded.calls["bagwise.posterior.default"] == 1


def test_bags_are_sent_to_a_device_once() -> None:
    _, bags = batch(CPU)
    with Recorded() as recorded:
        assert bags.to("meta") is bags
        assert bags.to("meta", non_blocking=True) is bags
    assert recorded.moves == ["aten._to_copy.default"]
    assert bags.to("cpu") is bags
    assert bags == batch(CPU)[1]


@pytest.mark.parametrize("device", ["gpu", "xpu:9", 1.5])
def test_a_device_that_there_is_not_is_named(device: Any) -> None:
    with pytest.raises(InputError, match=f"device is {device!r}; the name of a device"):
        batch(CPU)[1].to(device)


def test_pinned_bags_are_sent_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    _, bags = batch(CPU)
    assert bags.pin_memory() is bags
    assert bags.packed.numbers is pinned[0]
    assert on_device(bags, CPU).bag_of_row.data_ptr() == pinned[0].data_ptr()


@pytest.mark.parametrize("loss", ["cc", "cc, auto"])
def test_ragged_batches_are_compiled_into_few_graphs(loss: str) -> None:
    torch.compiler.reset()
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    device = CPU if loss == "cc" else META
    model = torch.nn.Linear(4, 5, device=device)
    compiled = torch.compile(
        lambda x, bags: cc_loss(model(x), bags, "device" if loss == "cc" else "auto"),
        backend=backend,
        fullgraph=True,
    )
    for i in range(10):
        bags = Bags.from_labels(np.arange(1030 + 5 * i) % 5, [12 + i] * 2 + [1006 + 3 * i])
        on_device(bags, device)
        inputs = torch.randn(bags.n_instances, 4, device=device)
        value = compiled(inputs, bags)
        if loss == "cc":
            torch.testing.assert_close(value, cc_loss(model(inputs), bags, "device"))
    assert len(graphs) <= 3
    operations = {str(node.target) for node in graphs[-1].graph.nodes}
    assert any("device_posterior" in name for name in operations)


def test_a_compiled_step_says_where_bags_must_be_sent_before() -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x, bags: cc_loss(x, bags, "device"), backend="eager", fullgraph=True
    )
    bags = Bags([2], [[1, 1]])
    with pytest.raises(Exception, match=r"not on cpu yet.*before the step"):
        compiled(torch.zeros(2, 2), bags)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_kernels_give_the_same_answer() -> None:
    torch.compiler.reset()
    for i in range(3):
        log_probs, bags = random_bags(i, [50 + i, 40, 12, 9 + i], 5)
        one, other = (
            bag_posterior(log_probs.float(), bags, "device", compiled=compiled)
            for compiled in (True, False)
        )
        torch.testing.assert_close(one.weights, other.weights, atol=1e-5, rtol=0)
        torch.testing.assert_close(one.log_likelihood, other.log_likelihood, atol=1e-4, rtol=1e-5)
