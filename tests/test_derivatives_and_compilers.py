"""Second derivatives, and training steps under torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.utils import counters
from torch.autograd import gradgradcheck
from torch.autograd.forward_ad import dual_level, make_dual
from torch.autograd.functional import hessian, hvp

from bagwise import (
    Bags,
    Groupings,
    bag_posterior,
    cc_loss,
    dllp_loss,
    ot_loss,
    pll_loss,
    pvc_loss,
    rc_loss,
    view_loss,
)
from bagwise.autograd.bag_tensors import tensors_of
from oracles import enumerate_bag, labelings, random_bags


@pytest.mark.parametrize("engine", ["exact", "auto"])
@pytest.mark.parametrize("C", [2, 3, 4])
def test_second_derivatives_are_those_of_finite_differences(engine: str, C: int) -> None:
    log_probs, bags = random_bags(3, [4, 1, 5], C, spread=1.0)
    log_probs.requires_grad_()
    assert gradgradcheck(
        lambda x: bag_posterior(x, bags, engine=engine).log_likelihood, (log_probs,)
    )


def test_second_derivatives_are_covariances_of_labels() -> None:
    log_probs, bags = random_bags(1, [5], 3)
    found = hessian(lambda x: bag_posterior(x, bags).log_likelihood.sum(), log_probs)
    log_likelihood, weights = enumerate_bag(log_probs.numpy(), bags.counts[0])
    expected = -torch.einsum("kc,jd->kcjd", torch.tensor(weights), torch.tensor(weights))
    for labels in torch.tensor(labelings(bags.counts[0])):
        share = (log_probs[torch.arange(5), labels].sum() - log_likelihood).exp()
        occurs = torch.nn.functional.one_hot(labels, 3).double()
        expected += share * torch.einsum("kc,jd->kcjd", occurs, occurs)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_the_hessian_of_a_loss_is_that_of_its_formula() -> None:
    logits = torch.tensor([[0.3, -0.2], [0.1, 0.5]], dtype=torch.float64)

    def formula(x: torch.Tensor) -> torch.Tensor:
        p = x.softmax(-1)
        return -(p[0, 0] * p[1, 1] + p[0, 1] * p[1, 0]).log() / 2

    found = hessian(lambda x: cc_loss(x, Bags([2], [[1, 1]])), logits)
    torch.testing.assert_close(found, hessian(formula, logits), atol=1e-14, rtol=0)


def test_certain_and_impossible_labels_have_no_curvature() -> None:
    log_probs = torch.tensor([[0.0, -torch.inf], [0.0, 0.0], [-1e4, 0.0]], dtype=torch.float64)
    bags = Bags([3], [[2, 1]])
    found = hessian(lambda x: bag_posterior(x, bags).log_likelihood.sum(), log_probs)
    torch.testing.assert_close(found, torch.zeros_like(found), atol=1e-12, rtol=0)


@pytest.mark.parametrize("engine", ["bethe", "multinomial", "transport"])
def test_engines_without_second_derivatives_say_so(engine: str) -> None:
    log_probs, bags = random_bags(3, [4, 5], 3)
    with pytest.raises(RuntimeError, match=rf"engine '{engine}' has no second.*engine=\"exact\""):
        hessian(lambda x: bag_posterior(x, bags, engine=engine).log_likelihood.sum(), log_probs)


def test_auto_says_which_bag_is_too_large_for_second_derivatives() -> None:
    log_probs, bags = random_bags(3, [4, 40], 4)
    with pytest.raises(RuntimeError, match=r"bag 1 \(size 40\).*engine=\"exact\""):
        hessian(lambda x: bag_posterior(x, bags, max_states=99).log_likelihood.sum(), log_probs)


def test_third_derivatives_are_refused() -> None:
    log_probs, bags = random_bags(3, [4], 3)
    log_probs.requires_grad_()
    value = bag_posterior(log_probs, bags).log_likelihood.sum()
    (first,) = torch.autograd.grad(value, log_probs, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), log_probs, create_graph=True)
    with pytest.raises(RuntimeError, match="twice, not three times"):
        torch.autograd.grad(second.sum(), log_probs)


@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_products_of_the_hessian_come_from_two_backward_passes(engine: str) -> None:
    logits, bags = random_bags(3, [4, 3], 3)
    direction = torch.randn_like(logits)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cc_loss(x, bags, engine).exp()

    _, found = hvp(loss, logits, direction)
    expected = torch.einsum("kcjd,jd->kc", hessian(loss, logits), direction)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_torch_func_gives_the_derivatives_of_backward() -> None:
    logits, bags = random_bags(3, [4, 3], 3)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cc_loss(x, bags)

    leaf = logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    assert torch.equal(torch.func.grad(loss)(logits), expected)
    assert torch.equal(torch.func.jacrev(loss)(logits), expected)
    found, value = torch.func.grad_and_value(loss)(logits)
    assert torch.equal(found, expected)
    assert torch.equal(value, loss(logits))
    second = torch.func.jacrev(torch.func.grad(loss))(logits)
    torch.testing.assert_close(second, hessian(loss, logits), atol=1e-14, rtol=0)
    with pytest.raises(RuntimeError, match="twice, not three times"):
        torch.func.jacrev(torch.func.jacrev(torch.func.grad(loss)))(logits)


@pytest.mark.parametrize("name", ["cc", "pvc", "view", "pll"])
def test_losses_and_gradients_of_several_models_are_mapped(name: str) -> None:
    logits, bags = random_bags(3, [4, 3], 3)
    several = torch.stack([logits, 2 * logits, -logits], 1)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return LOSSES[name](x, bags)

    for function in (loss, torch.func.grad(loss)):
        found = torch.vmap(function, in_dims=1)(several)
        torch.testing.assert_close(found, torch.stack([function(x) for x in several.unbind(1)]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of PyTorch's own
def test_forward_mode_is_refused_in_words() -> None:
    logits, bags = random_bags(3, [4, 3], 3)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cc_loss(x, bags)

    for function in (torch.func.jacfwd, torch.func.hessian):
        with pytest.raises(RuntimeError, match=r"no forward-mode derivative.*use reverse mode"):
            function(loss)(logits)
    with dual_level(), pytest.raises(RuntimeError, match="no forward-mode derivative"):
        loss(make_dual(logits, logits))


def test_transforms_of_several_groupings_are_refused_in_words() -> None:
    logits, bags = random_bags(3, [4, 3], 3)
    groupings = Groupings({"ward": (bags.bag_of_row, bags), "age": (bags.bag_of_row, bags)})

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cc_loss(x, groupings)

    for function, given in ((torch.func.grad(loss), logits), (torch.vmap(loss), logits[None])):
        with pytest.raises(RuntimeError, match=r"several groupings are not for.*use backward"):
            function(given)


def test_what_is_proved_stays_on_the_cpu_in_double_precision() -> None:
    log_probs, bags = random_bags(3, [4, 3], 3)
    exact, rough = (bag_posterior(log_probs.to(kind), bags) for kind in (torch.double, torch.half))
    assert exact.bound is not None
    assert rough.bound is not None
    assert rough.bound.dtype == torch.double
    assert torch.equal(exact.bound, rough.bound)


def test_half_precision_has_second_derivatives_too() -> None:
    log_probs, bags = random_bags(3, [4], 3)
    rough = hessian(lambda x: bag_posterior(x, bags).log_likelihood.sum(), log_probs.bfloat16())
    exact = hessian(
        lambda x: bag_posterior(x, bags).log_likelihood.sum(), log_probs.bfloat16().double()
    )
    torch.testing.assert_close(rough.double(), exact, atol=0.01, rtol=0)


def _stored(logits: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(logits).detach()


LOSSES: dict[str, Callable[[torch.Tensor, Bags], torch.Tensor]] = {
    "cc": cc_loss,
    "cc, bethe": lambda logits, bags: cc_loss(logits, bags, engine="bethe"),
    "cc_approx": lambda logits, bags: cc_loss(logits, bags, engine="multinomial"),
    "cc, by bag": lambda logits, bags: cc_loss(logits, bags, reduction="none").sum(),
    "dllp": dllp_loss,
    "pvc": pvc_loss,
    "view": lambda logits, bags: view_loss(logits, logits.detach().softmax(-1)),
    "rc": lambda logits, bags: rc_loss(logits, bags, _stored(logits)),
    "ot": lambda logits, bags: ot_loss(logits, bags, _stored(logits)),
    "pll": lambda logits, bags: pll_loss(logits, bags, _stored(logits)),
}
BATCHES = ([[1, 1, 0], [1, 1, 1]], [[1, 0, 0], [0, 2, 2]], [[2, 1, 1], [1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("name", LOSSES)
def test_a_compiled_step_is_one_graph_with_the_same_gradients(name: str) -> None:
    torch.compiler.reset()  # it gives up where one function was compiled too often
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)

    def step(inputs: torch.Tensor, bags: Bags) -> torch.Tensor:
        return LOSSES[name](model(inputs), bags)

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    for counts in BATCHES:
        bags = Bags([sum(row) for row in counts], counts)
        inputs = torch.randn(bags.n_instances, 4)
        for loss, expected in zip(
            torch.autograd.grad(compiled(inputs, bags), model.parameters()),
            torch.autograd.grad(step(inputs, bags), model.parameters()),
            strict=True,
        ):
            torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("name", LOSSES)
def test_ragged_batches_are_compiled_into_two_graphs_at_most(name: str) -> None:
    torch.compiler.reset()
    counters.clear()
    model = torch.nn.Linear(4, 3)
    compiled = torch.compile(
        lambda inputs, bags: LOSSES[name](model(inputs), bags), backend="aot_eager", fullgraph=True
    )
    for i in range(12):
        bags = Bags.from_labels(torch.arange(9 + i) % 3, [3 + i, 4, *[1] * (i % 2), 2 - i % 2])
        compiled(torch.randn(bags.n_instances, 4), bags).backward()
    assert counters["stats"]["unique_graphs"] <= 2  # of one size, and of any


# PyTorch warns of its own look at .grad where a graph is broken.
@pytest.mark.filterwarnings("ignore:.*grad attribute of a Tensor that is not a leaf")
def test_bags_may_be_made_inside_a_compiled_step() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)

    def step(inputs: torch.Tensor) -> torch.Tensor:
        return cc_loss(model(inputs), Bags([2, 3], [[1, 1, 0], [1, 1, 1]]))

    inputs = torch.randn(5, 4)
    compiled = torch.compile(step, backend="aot_eager")
    torch.testing.assert_close(compiled(inputs), step(inputs))


def test_the_operator_passes_pytorchs_own_checks() -> None:
    log_probs, bags = random_bags(3, [4, 2], 3)
    arguments = (log_probs.requires_grad_(), *tensors_of(bags).known, "exact", [1e6])
    torch.library.opcheck(torch.ops.bagwise.posterior.default, arguments)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_traced_loss_computes_other_logits_too() -> None:
    logits, bags = random_bags(3, [4, 2], 3)
    traced = torch.jit.trace(lambda x: cc_loss(x, bags), logits)
    assert torch.equal(traced(2 * logits), cc_loss(2 * logits, bags))


def test_meta_tensors_give_shapes() -> None:
    post = bag_posterior(torch.zeros(6, 3, device="meta"), Bags([4, 2], [[2, 1, 1], [1, 1, 0]]))
    assert post.weights.is_meta
    assert post.weights.shape == (6, 3)
    assert post.log_likelihood.shape == (2,)
