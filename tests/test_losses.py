"""Losses and their gradients against direct transcriptions of the formulas."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from bagwise import (
    Bags,
    cc_loss,
    cc_squared_loss,
    dllp_loss,
    llpfc_loss,
    ot_loss,
    pll_cc_loss,
    pll_loss,
    pvc_loss,
    rc_loss,
    view_loss,
)
from bagwise.losses import weighted_cross_entropy
from oracles import enumerate_bag, multinomial_bag, random_bags

SHAPES = [(K, C) for K in (2, 4, 7, 8) for C in (3, 5, 10)]


def transcribed(name: str, logits: torch.Tensor, bags: Bags, stored: torch.Tensor) -> torch.Tensor:
    """The loss of one bag of K instances, from the paper's formulas, by enumeration."""
    K = len(logits)
    counts = bags.counts[0]
    log_e = logits.log_softmax(-1)
    if name == "cc":
        labels = torch.tensor(_all_labelings(counts))
        return -torch.logsumexp(log_e[torch.arange(K), labels].sum(1), 0) / K
    if name == "cc_approx":
        return -multinomial_bag(log_e, counts)[0] / K
    if name == "dllp":
        return -(torch.tensor(counts / K) * log_e.exp().mean(0).log()).nansum()
    if name == "rc":
        weights = enumerate_bag(stored.double().numpy(), counts)[1]
    elif name == "rc_approx":
        weights = multinomial_bag(stored.double().log_softmax(-1), counts)[1]
    else:  # pll
        weights = np.where(counts > 0, stored.double().exp().numpy(), 0)
        weights /= weights.sum(1, keepdims=True)
    return -(torch.tensor(weights) * log_e).sum() / K


def _all_labelings(counts: np.ndarray) -> np.ndarray:
    from oracles import labelings

    return labelings(counts)


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "cc": lambda logits, bags, stored: cc_loss(logits, bags),
    "cc_approx": lambda logits, bags, stored: cc_loss(logits, bags, engine="multinomial"),
    "dllp": lambda logits, bags, stored: dllp_loss(logits, bags),
    "rc": lambda logits, bags, stored: rc_loss(logits, bags, stored),
    "rc_approx": lambda logits, bags, stored: rc_loss(logits, bags, stored, engine="multinomial"),
    "pll": pll_loss,
}


REDUCED: dict[str, Callable[..., torch.Tensor]] = {
    "cc": lambda logits, bags, stored, **o: cc_loss(logits, bags, **o),
    "cc_approx": lambda logits, bags, stored, **o: cc_loss(logits, bags, "multinomial", **o),
    "dllp": lambda logits, bags, stored, **o: dllp_loss(logits, bags, **o),
    "rc": rc_loss,
    "rc_approx": lambda logits, bags, stored, **o: rc_loss(
        logits, bags, stored, "multinomial", **o
    ),
    "pll": pll_loss,
    "ot": ot_loss,
}


@pytest.mark.parametrize(("K", "C"), SHAPES)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_the_formulas(
    name: str, K: int, C: int, dtype: torch.dtype
) -> None:
    logits, bags = random_bags(K + C, [K], C)
    stored = random_bags(K * C, [K], C)[0].log_softmax(-1)
    expected_logits = logits.clone().requires_grad_()
    expected = transcribed(name, expected_logits, bags, stored)
    expected.backward()
    found_logits = logits.to(dtype).requires_grad_()
    found = LOSSES[name](found_logits, bags, stored.to(dtype))
    found.backward()
    assert found.dtype == dtype
    tolerance = 1e-9 if dtype is torch.float64 else 2e-5
    assert found.item() == pytest.approx(expected.item(), rel=tolerance, abs=tolerance)
    torch.testing.assert_close(
        found_logits.grad.double(), expected_logits.grad, atol=tolerance, rtol=0
    )


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [50.0, 1000.0])
def test_extreme_logits_give_finite_losses_and_gradients(
    name: str, dtype: torch.dtype, scale: float
) -> None:
    logits, bags = random_bags(3, [7, 8, 2], 5, spread=scale)
    logits = logits.clamp(-scale, scale).to(dtype).requires_grad_()
    stored = logits.detach().flip(0).log_softmax(-1)
    loss = {**LOSSES, "ot": ot_loss}[name](logits, bags, stored)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["cc", "cc_approx", "dllp"])
def test_extreme_logits_give_the_right_likelihood(name: str) -> None:
    # Two instances, both sure of class 0 by 800 nats, one of each class: a bag loss of about 400.
    logits = torch.tensor([[800.0, 0], [800, 0]], dtype=torch.float64)
    loss = LOSSES[name](logits, Bags([2], [[1, 1]]), None).item()
    half_log_two = {"cc": math.log(2) / 2, "cc_approx": math.log(2) / 2, "dllp": 0}[name]
    assert loss == pytest.approx(400 - half_log_two)


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_a_batch_has_the_size_weighted_mean_loss_of_its_bags(name: str) -> None:
    logits, bags = random_bags(4, [2, 9, 1, 5], 3)
    stored = random_bags(5, [2, 9, 1, 5], 3)[0].log_softmax(-1)
    function = {**LOSSES, "ot": ot_loss}[name]
    alone = [
        function(logits[bags.rows([b])], bags.select([b]), stored[bags.rows([b])]).item()
        for b in range(4)
    ]
    expected = np.average(alone, weights=bags.sizes)
    assert function(logits, bags, stored).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_reductions_are_sums_of_the_bags_losses(name: str) -> None:
    logits, bags = random_bags(4, [2, 9, 1, 5], 3)
    stored = random_bags(5, [2, 9, 1, 5], 3)[0].log_softmax(-1)
    function = REDUCED[name]
    by_bag = function(logits, bags, stored, reduction="none")
    assert by_bag.shape == (4,)
    for b in range(4):
        rows = bags.rows([b])
        alone = function(logits[rows], bags.select([b]), stored[rows], reduction="sum")
        assert by_bag[b].item() == pytest.approx(alone.item(), rel=1e-12)
    assert function(logits, bags, stored, reduction="sum").item() == pytest.approx(
        by_bag.sum().item(), rel=1e-12
    )
    assert function(logits, bags, stored, reduction="mean").item() == pytest.approx(
        by_bag.sum().item() / 17, rel=1e-12
    )
    with pytest.raises(ValueError, match="reduction is 'average'; choose"):
        function(logits, bags, stored, reduction="average")


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_accumulated_sums_give_the_gradient_of_the_whole_batch(name: str) -> None:
    logits, bags = random_bags(4, [2, 9, 1, 5], 3)
    stored = random_bags(5, [2, 9, 1, 5], 3)[0].log_softmax(-1)
    whole = logits.clone().requires_grad_()
    REDUCED[name](whole, bags, stored).backward()
    parts = logits.clone().requires_grad_()
    for index in ([0, 1], [2], [3]):
        rows = bags.rows(index)
        loss = REDUCED[name](parts[rows], bags.select(index), stored[rows], reduction="sum")
        (loss / 17).backward()
    torch.testing.assert_close(parts.grad, whole.grad, atol=1e-12, rtol=0)


def test_losses_of_instances_reduce_to_instances() -> None:
    logits, _ = random_bags(4, [3], 2)
    weights = torch.tensor([[0.3, 0.7], [1, 0], [0.5, 0.5]], dtype=torch.float64)
    transitions = torch.tensor([[[0.9, 0.2], [0.1, 0.8]]] * 3, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    for function in (
        lambda **options: weighted_cross_entropy(logits, weights, **options),
        lambda **options: llpfc_loss(logits, labels, transitions, **options),
    ):
        each = function(reduction="none")
        assert each.shape == (3,)
        assert function(reduction="sum").item() == pytest.approx(each.sum().item())
        assert function().item() == pytest.approx(each.mean().item())


def _normalized(layer: nn.Module) -> torch.Tensor:
    """Logits (6, 3) with this layer behind them."""
    torch.manual_seed(0)
    return nn.Linear(4, 3)(layer(nn.Linear(4, 4)(torch.randn(6, 4))))


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_one_bag_normalized_by_batch_is_warned_of(name: str) -> None:
    stored = torch.zeros(6, 3)
    logits = _normalized(nn.BatchNorm1d(4))
    with pytest.warns(UserWarning, match=r"single bag \(of 6 instances\).*batch_bags"):
        REDUCED[name](logits, Bags([6], [[3, 2, 1]]), stored)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        REDUCED[name](logits, Bags([3, 3], [[1, 1, 1], [2, 1, 0]]), stored)


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4).eval(), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.Identity()],
    ids=lambda layer: type(layer).__name__,
)
def test_other_normalization_is_not_warned_of(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cc_loss(_normalized(layer), Bags([6], [[3, 2, 1]]))


def test_batch_normalization_is_not_searched_for_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []
    steps: list[int] = []

    def search(logits: torch.Tensor) -> bool:
        searched.append(len(steps))
        return False

    monkeypatch.setattr("bagwise.autograd.logits._normalized_by_batch", search)
    for _model in range(2):  # each of which is looked at from its first step on
        model, bags = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), Bags([6], [[3, 2, 1]])
        steps.clear()
        for step in range(20):
            steps.append(step)
            cc_loss(model(torch.zeros(6, 4)) / 2, bags)
    assert searched == 2 * [1, 2, 4, 8, 16]


def test_normalization_of_single_instances_is_not_warned_of() -> None:
    torch.manual_seed(0)
    hidden = nn.InstanceNorm1d(4)(nn.Linear(5, 5)(torch.randn(6, 4, 5)))
    logits = nn.Linear(20, 3)(hidden.flatten(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cc_loss(logits, Bags([6], [[3, 2, 1]]))


def test_no_gradient_flows_into_what_is_stored() -> None:
    logits, bags = random_bags(6, [4], 3)
    stored = logits.log_softmax(-1).requires_grad_()
    for function in (rc_loss, ot_loss, pll_loss):
        function(logits.clone().requires_grad_(), bags, stored).backward()
    assert stored.grad is None


def test_pll_cc_is_the_probability_of_a_bags_classes_with_the_gradient_of_pll_of_now() -> None:
    logits, bags = random_bags(2, [2, 1, 3], 4)
    logits.requires_grad_()
    p = logits.detach().softmax(-1)
    expected = [
        -sum(math.log(p[k, bags.counts[b] > 0].sum()) for k in bags.rows([b])) for b in range(3)
    ]
    found = pll_cc_loss(logits, bags, reduction="none")
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9)
    assert pll_cc_loss(logits, bags).item() == pytest.approx(sum(expected) / 6)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    stored = logits.detach().log_softmax(-1)
    (of_pll,) = torch.autograd.grad(pll_loss(logits, bags, stored, reduction="sum"), logits)
    torch.testing.assert_close(gradient, of_pll)


def test_ot_is_rc_with_the_transport_engine() -> None:
    logits, bags = random_bags(7, [6], 3)
    expected = rc_loss(logits, bags, logits, engine="transport", epsilon=0.5, iterations=10)
    assert torch.equal(ot_loss(logits, bags, logits, epsilon=0.5, iterations=10), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_llpfc_is_the_forward_corrected_cross_entropy(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.ones(3), size=(2, 3)).transpose(0, 2, 1)  # columns sum to 1
    groups, noisy = np.array([0, 1, 1, 0]), np.array([0, 2, 1, 2])
    logits = torch.tensor(rng.normal(size=(4, 3)), dtype=dtype)
    p = logits.double().softmax(-1).numpy()
    expected = -np.mean(
        [np.log(T[g, i] @ p[k]) for k, (g, i) in enumerate(zip(groups, noisy, strict=True))]
    )
    T_, groups_, noisy_ = torch.tensor(T), torch.tensor(groups), torch.tensor(noisy)
    assert llpfc_loss(logits, noisy_, T_, groups_).item() == pytest.approx(expected, rel=1e-5)
    assert llpfc_loss(logits, noisy_, T_[groups_]).item() == pytest.approx(expected, rel=1e-5)


def test_weights_multiply_the_llpfc_loss_of_each_instance() -> None:
    logits = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    noisy, T = torch.tensor([0, 1, 1]), torch.tensor([[[0.9, 0.2], [0.1, 0.8]]]).expand(3, 2, 2)
    weights = torch.tensor([2.0, 0.5, 0.5], dtype=torch.float64)
    each = llpfc_loss(logits, noisy, T, reduction="none")
    weighted = llpfc_loss(logits, noisy, T, weights=weights, reduction="none")
    torch.testing.assert_close(weighted, each * weights.float())
    mean = llpfc_loss(logits, noisy, T, weights=weights)
    torch.testing.assert_close(mean, weighted.sum() / 3)
    with pytest.raises(ValueError, match=r"weights has shape \(2,\); \(3,\)"):
        llpfc_loss(logits, noisy, T, weights=weights[:2])


def test_llpfc_is_finite_with_classes_that_a_group_lacks() -> None:
    transition = torch.tensor([[[1.0, 0, 0], [0, 1, 0], [0, 0, 0]]])
    logits = torch.tensor([[0.0, 0, 900]]).requires_grad_()
    loss = llpfc_loss(logits, torch.tensor([1]), transition)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_wrong_shapes_and_types_are_named(name: str) -> None:
    logits, bags = random_bags(8, [3, 2], 3)
    function = {**LOSSES, "ot": ot_loss}[name]
    for wrong in (logits[:, :1], logits[:4], logits[:1]):
        with pytest.raises(ValueError, match=r"5 instances and 3 classes"):
            function(wrong, bags, logits)
    with pytest.raises(TypeError, match="ndarray"):
        function(logits.numpy(), bags, logits)
    with pytest.raises(TypeError, match=r"bags is a list"):
        function(logits, [3, 2], logits)


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_masked_classes_that_no_bag_has_do_no_harm(name: str) -> None:
    logits, _ = random_bags(9, [4], 3)
    bags = Bags([4], [[2, 2, 0]])
    masked = logits.clone()
    masked[:, 2] = -math.inf
    masked.requires_grad_()
    function = {**LOSSES, "ot": ot_loss}[name]
    loss = function(masked, bags, logits.log_softmax(-1))
    loss.backward()
    assert loss.isfinite()
    assert masked.grad.isfinite().all()


@pytest.mark.parametrize("name", [*LOSSES, "ot"])
def test_half_precision_is_taken(name: str) -> None:
    logits, bags = random_bags(10, [4, 3], 3)
    function = {**LOSSES, "ot": ot_loss}[name]
    stored = logits.log_softmax(-1)
    rough = function(logits.bfloat16(), bags, stored.bfloat16()).item()
    assert rough == pytest.approx(function(logits, bags, stored).item(), rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(dtype: torch.dtype) -> None:
    logits, stored = torch.zeros(70_000, 2, dtype=dtype), torch.zeros(70_000, 2)
    small, large = Bags([10] * 7000, [[5, 5]] * 7000), Bags([70_000], [[35_000, 35_000]])
    for loss in (
        rc_loss(logits, small, stored),
        pll_loss(logits, small, stored),
        dllp_loss(logits, large),
        weighted_cross_entropy(logits, torch.full_like(logits, 0.5)),
    ):
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(math.log(2))
    whole = rc_loss(logits, large, stored, reduction="none").item()
    assert whole == pytest.approx(70_000 * math.log(2), rel=1e-2)


@pytest.mark.parametrize("loss", [rc_loss, pll_loss])
def test_stored_log_probabilities_that_give_no_weights_are_named(
    loss: Callable[..., torch.Tensor],
) -> None:
    logits, bags = random_bags(8, [3, 2], 3)
    with pytest.raises(TypeError, match="stored_log_probs is a ndarray"):
        loss(logits, bags, logits.numpy())
    with pytest.raises(ValueError, match=r"stored_log_probs has shape \(1, 3\).*5 instances"):
        loss(logits, bags, logits[:1])
    for wrong in (math.nan, math.inf, -math.inf):
        stored = logits.clone()
        stored[3] = wrong
        with pytest.raises(ValueError, match=r"log_probs\[3|no labeling of bag 1"):
            loss(logits, bags, stored)


def test_one_class_is_learned_without_a_loss() -> None:
    assert view_loss(torch.randn(3, 1), torch.ones(3, 1)) == 0


def test_a_second_view_says_which_shapes_differ() -> None:
    logits = torch.zeros(4, 3)
    with pytest.raises(ValueError, match=r"\(4, 3\) and weights \(4, 2\); they must be the same"):
        view_loss(logits, torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"\(4, 3\) and sureness \(3, 3\)"):
        view_loss(logits, torch.ones(4, 3), torch.ones(3, 3))


def test_transitions_must_match_instances_or_groups() -> None:
    with pytest.raises(ValueError, match="2 transition matrices for 4 instances"):
        llpfc_loss(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), torch.ones(2, 2, 2) / 2)


def poisson_binomial(log_p: list[float], log_not: list[float], n: int) -> float:
    """log P(N = n) by adding instance after instance, in logarithms."""
    log_counts = [0.0] + [-math.inf] * n
    for yes, no in zip(log_p, log_not, strict=True):
        before = [-math.inf, *log_counts[:-1]]
        log_counts = [
            float(np.logaddexp(stays + no, came + yes))
            for stays, came in zip(log_counts, before, strict=True)
        ]
    return log_counts[n]


@pytest.mark.parametrize("gap", [0.0, 5.0, 20.0, 60.0])
def test_pvc_is_right_where_the_model_is_confidently_wrong(gap: float) -> None:
    counts = [0, 1, 1]
    logits = torch.tensor([[gap, 0.0, -gap], [gap, 0.0, 0.5]], dtype=torch.float64)
    log_p = logits.log_softmax(-1).tolist()
    expected = 0.0
    for c in range(3):
        others = [[row[j] for j in range(3) if j != c] for row in log_p]
        log_not = [float(np.logaddexp(*pair)) for pair in others]
        expected -= poisson_binomial([row[c] for row in log_p], log_not, counts[c]) / 2
    for kind, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        value = pvc_loss(logits.to(kind), Bags([2], [counts]))
        assert value.item() == pytest.approx(expected, rel=tolerance)
    assert torch.autograd.gradcheck(
        lambda given: pvc_loss(given, Bags([2], [counts])), logits.requires_grad_()
    )


def test_pvc_has_gradients_where_a_class_is_certain() -> None:
    logits = torch.tensor([[3.0, -math.inf], [0.0, 1.0]], requires_grad=True)
    pvc_loss(logits, Bags([2], [[1, 1]])).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    single = torch.tensor([[3.0]], requires_grad=True)
    assert pvc_loss(single, Bags([1], [[1]])).item() == 0


TRANSITIONS = torch.tensor([[[0.9, 0.2], [0.1, 0.8]], [[0.6, 0.3], [0.4, 0.7]]])


@pytest.mark.parametrize(
    ("labels", "transitions", "groups", "message"),
    [
        ([[0], [1]], TRANSITIONS, None, r"noisy_labels .* shape \(2, 1\); \(2,\) integers"),
        ([False, True], TRANSITIONS, None, "noisy_labels is torch.bool"),
        ([0, -1], TRANSITIONS, None, r"noisy_labels\[1\] is -1; integers from 0 to 1"),
        ([1], TRANSITIONS, None, r"shape \(1,\)"),
        ([0, 1], TRANSITIONS, [[0], [1]], r"groups .* shape \(2, 1\)"),
        ([0, 1], TRANSITIONS, [0, 2], r"groups\[1\] is 2; integers from 0 to 1"),
        ([0, 1], TRANSITIONS[:, :, :1], None, "matrices of 2 x 2"),
    ],
)
def test_llpfc_refuses_what_it_would_broadcast(
    labels: list[int], transitions: torch.Tensor, groups: list[int] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        llpfc_loss(
            torch.tensor([[2.0, 0.0], [0.0, 1.0]]),
            torch.tensor(labels),
            transitions,
            None if groups is None else torch.tensor(groups),
        )


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_view_loss_refuses_what_is_no_probability(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"weights\[0, 1\] is .*; probabilities of 0 or more"):
        view_loss(torch.zeros(2, 2), torch.tensor([[1.0, wrong], [0.5, 0.5]]))


NOT_FINITE = {
    "cc": lambda x, bags: cc_loss(x, bags),
    "cc, bethe": lambda x, bags: cc_loss(x, bags, "bethe"),
    "cc_approx": lambda x, bags: cc_loss(x, bags, "multinomial"),
    "rc": lambda x, bags: rc_loss(x, bags, torch.zeros(5, 3)),
    "rc_squared": lambda x, bags: rc_loss(
        x, bags, torch.zeros(5, 3), instance_loss="squared_error"
    ),
    "cc_squared": cc_squared_loss,
    "ot": lambda x, bags: ot_loss(x, bags, torch.zeros(5, 3)),
    "pll": lambda x, bags: pll_loss(x, bags, torch.zeros(5, 3)),
    "pll_cc": pll_cc_loss,
    "dllp": dllp_loss,
    "pvc": pvc_loss,
    "view": lambda x, bags: view_loss(x, torch.eye(3)[[0, 1, 2, 0, 1]]),
    "llpfc": lambda x, bags: llpfc_loss(
        x, torch.tensor([0, 0, 0, 1, 1]), torch.eye(3).repeat(5, 1, 1)
    ),
}


@pytest.mark.parametrize("name", NOT_FINITE)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_logits_that_are_not_finite_give_nan_and_no_error(name: str, wrong: float) -> None:
    bags = Bags([3, 2], [[1, 1, 1], [1, 1, 0]])
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    logits[3, 1] = wrong
    logits.requires_grad_()
    loss = NOT_FINITE[name](logits, bags)
    assert loss.isnan()
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[3].isnan().any()


def test_only_the_bag_of_a_logit_that_is_not_finite_has_no_value() -> None:
    bags = Bags([3, 2], [[1, 1, 1], [1, 1, 0]])
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    broken = logits.clone()
    broken[3, 1] = math.nan
    for loss in (cc_loss, pvc_loss, dllp_loss):
        expected, found = (loss(x, bags, reduction="none") for x in (logits, broken))
        assert found[0] == expected[0]
        assert found[1].isnan()


@pytest.mark.parametrize("name", ["cc", "rc", "dllp", "pvc"])
def test_a_step_that_overflows_is_left_out_by_mixed_precision(name: str) -> None:
    bags = Bags([3, 2], [[1, 1, 1], [1, 1, 0]])
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    inputs = torch.randn(5, 4)
    losses = []
    for step in range(4):
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        loss = NOT_FINITE[name](model(inputs * (math.inf if step == 1 else 1)), bags)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, model.weight) == (step == 1)
        losses.append(loss.item())
    assert math.isnan(losses[1])
    assert losses[3] < losses[2] < losses[0]
    assert scaler.get_scale() == 512
