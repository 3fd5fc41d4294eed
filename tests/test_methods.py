from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bagwise import BagData, Bags, bag_posterior
from bagwise.losses import llpfc_loss
from bagwise.methods import LLPFC, METHODS, RC, Batch, Method, make_method, register
from bagwise.methods.llpfc import transition_matrices
from oracles import random_bags

CPU = torch.device("cpu")


def some_data(sizes: list[int], C: int = 3, seed: int = 0) -> BagData:
    logits, bags = random_bags(seed, sizes, C)
    return BagData(logits.float(), bags)


def test_every_method_of_the_paper_is_found_by_name() -> None:
    names = ["rc", "rc_approx", "cc", "cc_approx", "dllp", "llpfc", "ot", "pll", "supervised"]
    assert set(names) <= set(METHODS)
    for name in names:
        assert make_method(name).name == name


def test_unknown_names_and_options_say_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"'ccc'; choose one of supervised, rc, .*cc, .*pll"):
        make_method("ccc")
    with pytest.raises(ValueError, match=r"'ot'.*temperature"):
        make_method("ot", temperature=3)


@pytest.mark.parametrize("name", ["rc", "rc_approx", "ot", "pll"])
def test_stored_probabilities_begin_as_proportions_and_follow_the_model(name: str) -> None:
    data = some_data([2, 3, 4])
    method = make_method(name)
    method.begin(data, CPU)
    expected = data.bags.proportions[data.bags.bag_of_row]
    np.testing.assert_allclose(method.kept["log_probs"].exp().numpy(), expected, rtol=1e-6)
    index = np.array([2, 0])
    batch = Batch(torch.from_numpy(data.bags.rows(index)), data.bags.select(index))
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    first = method.loss(logits, batch)
    torch.testing.assert_close(method.kept["log_probs"][batch.rows], logits.log_softmax(-1))
    untouched = data.bags.rows([1])
    np.testing.assert_allclose(
        method.kept["log_probs"][untouched].exp().numpy(), expected[untouched], rtol=1e-6
    )
    assert method.loss(logits, batch) != first  # the weights now come from what was stored


def test_the_first_weights_of_rc_are_the_proportions() -> None:
    data = some_data([5, 5])
    method = RC()
    method.begin(data, CPU)
    batch = Batch(torch.arange(10), data.bags)
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(1))
    proportions = torch.tensor(data.bags.proportions[data.bags.bag_of_row]).float()
    expected = torch.nn.functional.cross_entropy(logits, proportions)
    torch.testing.assert_close(method.loss(logits, batch), expected)


def test_batches_are_all_bags_once_in_random_order() -> None:
    data = some_data([3] * 20)
    batches = list(make_method("cc").batches(data, 7, torch.Generator().manual_seed(0)))
    rows = torch.cat([batch.rows for batch in batches])
    assert sorted(rows.tolist()) == list(range(60))
    assert rows.tolist() != list(range(60))
    for batch in batches:
        assert batch.bags is not None
        assert batch.bags.n_instances == len(batch.rows) <= 7


def test_transition_matrices_follow_the_formula_and_have_stochastic_columns() -> None:
    gamma = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 4))
    T = transition_matrices(torch.tensor(gamma)).numpy()
    for g in range(3):
        for i in range(4):
            for c in range(4):
                expected = gamma[g, i, c] / (4 * gamma[g, :, c].mean())
                assert T[g, i, c] == pytest.approx(expected)
    np.testing.assert_allclose(T.sum(axis=1), 1)


def test_llpfc_groups_bags_by_number_of_classes_and_regroups() -> None:
    data = some_data([4] * 11, C=3)
    method = LLPFC(regroup_every=2)
    method.begin(data, CPU)
    generator = torch.Generator().manual_seed(0)
    seen = []
    for epoch in range(1, 5):
        method.begin_epoch(epoch, generator)
        group, label = method.kept["group"].numpy(), method.kept["label"].numpy()
        assert (group == -1).sum() == 11 % 3  # left over: they wait
        for g in range(3):
            assert sorted(label[group == g]) == [0, 1, 2]
        rows = torch.cat([b.rows for b in method.batches(data, 10, generator)])
        assert sorted(rows.tolist()) == np.flatnonzero(group[data.bags.bag_of_row] >= 0).tolist()
        seen.append(group.copy())
    assert (seen[0] == seen[1]).all()
    assert (seen[2] == seen[3]).all()
    assert (seen[1] != seen[2]).any()


def test_llpfc_uses_the_transitions_of_each_group() -> None:
    data = some_data([4] * 6, C=3)
    method = LLPFC()
    method.begin(data, CPU)
    method.begin_epoch(1, torch.Generator().manual_seed(0))
    logits = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
    found = method.loss(logits, Batch(torch.arange(24), None)).item()
    p = logits.softmax(-1).numpy()
    group, label = method.kept["group"].numpy(), method.kept["label"].numpy()
    gamma = data.bags.proportions
    losses = []
    for k, bag in enumerate(data.bags.bag_of_row):
        members = np.flatnonzero(group == group[bag])
        total = gamma[members].sum(axis=0)
        T = np.divide(gamma[bag], total, out=np.zeros(3), where=total > 0)
        losses.append(-np.log(T @ p[k]))
        assert 0 <= label[bag] < 3
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


def llpfc_on_a_population(sizes: list[int], shares: list[float]) -> tuple[LLPFC, torch.Tensor]:
    """Two bags that are whole populations: P(x = 0 | class 0) = 3/4 and P(x = 0 | class 1) = 1/4.

    The method with the two in a group, and the x of each instance.
    """
    x, counts = [], []
    for size, share in zip(sizes, shares, strict=True):
        n = [round(size * share), round(size * (1 - share))]
        zeros = n[0] * 3 // 4 + n[1] // 4
        assert 4 * zeros == 3 * n[0] + n[1]
        x += [0] * zeros + [1] * (size - zeros)
        counts.append(n)
    method = LLPFC()
    method.begin(BagData(torch.tensor(x)[:, None].float(), Bags(sizes, counts)), CPU)
    method.begin_epoch(1, torch.Generator().manual_seed(0))
    return method, torch.tensor(x)


@pytest.mark.parametrize("sizes", [[32, 32], [160, 16], [16, 64]])
@pytest.mark.parametrize("shares", [[0.75, 0.25], [0.75, 0.5]])
def test_llpfc_is_minimized_by_the_true_posterior_also_with_bags_of_unequal_size(
    sizes: list[int], shares: list[float]
) -> None:
    method, x = llpfc_on_a_population(sizes, shares)
    prior = np.mean([[share, 1 - share] for share in shares], axis=0)  # bags are equally likely
    joint = np.array([[0.75, 0.25], [0.25, 0.75]]) * prior  # of x and the class
    truth = torch.tensor(joint / joint.sum(1, keepdims=True)).log().requires_grad_()
    rows = Batch(torch.arange(len(x)), None)
    loss = method.loss(truth[x], rows)
    loss.backward()
    torch.testing.assert_close(
        truth.grad, torch.zeros(2, 2, dtype=torch.float64), atol=1e-7, rtol=0
    )
    random = np.random.default_rng(0)
    for _ in range(20):
        other = truth.detach() + torch.tensor(random.normal(scale=0.3, size=(2, 2)))
        assert method.loss(other[x], rows) > loss


def test_llpfc_weighs_instances_of_equal_bags_alike() -> None:
    data = some_data([4] * 7, C=3)  # one bag is left over
    method = LLPFC()
    method.begin(data, CPU)
    method.begin_epoch(1, torch.Generator().manual_seed(0))
    rows = torch.from_numpy(np.flatnonzero(method.kept["group"].numpy()[data.bags.bag_of_row] >= 0))
    logits = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(1))
    bag = torch.from_numpy(data.bags.bag_of_row)[rows]
    label, group = method.kept["label"][bag], method.kept["group"][bag]
    expected = llpfc_loss(logits, label, method._transitions, group)
    assert method.loss(logits, Batch(rows, None)) == expected


def test_llpfc_needs_a_group_of_bags() -> None:
    with pytest.raises(ValueError, match=r"3 bags .* only 2 bags"):
        LLPFC().begin(some_data([4, 4], C=3), CPU)


def test_supervised_says_that_it_needs_labels() -> None:
    with pytest.raises(ValueError, match=r"needs labels of instances.*for instance cc"):
        make_method("supervised").begin(some_data([4, 4]), CPU)


def test_a_new_method_is_one_class() -> None:
    @register("test_only_uniform")
    class Uniform(Method):
        def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
            return -logits.log_softmax(-1).mean()

    try:
        assert isinstance(make_method("test_only_uniform"), Uniform)
    finally:
        del METHODS["test_only_uniform"]


def test_data_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows of inputs, but the bags have 2"):
        BagData(torch.zeros(3, 1), Bags([2], [[1, 1]]))
    with pytest.raises(ValueError, match=r"labels has shape \(3,\)"):
        BagData(torch.zeros(2, 1), Bags([2], [[1, 1]]), torch.zeros(3))


class _Scaled(Method):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.factor = scale

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self.factor * logits.square().mean()


def test_an_argument_that_is_not_kept_is_named_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METHODS, "scaled", _Scaled)
    mistake = r"_Scaled has no attribute 'scale'; keep .* in attributes of the same names"
    with pytest.raises(TypeError, match=mistake):
        make_method("scaled", scale=3.0)
    with pytest.raises(TypeError, match=mistake):
        make_method(_Scaled())
    with pytest.raises(TypeError, match=mistake):
        _Scaled().get_params()


def test_the_settings_of_every_method_make_it_again() -> None:
    for name in METHODS:
        settings = make_method(name).get_params()
        assert make_method(name, **settings).get_params() == settings
    assert make_method("cc", engine="bethe", max_iterations=7).get_params() == {
        "engine": "bethe",
        "max_iterations": 7,
    }


def test_options_for_a_method_that_is_made_are_refused() -> None:
    with pytest.raises(TypeError, match=r"record_gap would be ignored; give RC its options"):
        make_method(RC(), record_gap=True)


def test_a_name_is_taken_once_but_a_cell_may_be_run_twice() -> None:
    cc = METHODS["cc"]

    def cell(factor: float) -> type[Method]:
        @register("test_only_cell")
        class Cell(Method):
            def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
                return factor * logits.mean()

        return Cell

    try:
        cell(1.0)
        again = cell(2.0)
        assert METHODS["test_only_cell"] is again
        with pytest.raises(ValueError, match=r"method 'cc' already, bagwise\.methods\.direct\.CC;"):
            register("cc")(_Scaled)
        with pytest.raises(ValueError, match=r"Cell is registered as 'test_only_cell' already"):
            register("another_name")(again)
    finally:
        del METHODS["test_only_cell"]
    assert METHODS["cc"] is cc
    assert _Scaled.name == ""
    assert "another_name" not in METHODS


@pytest.mark.parametrize("name", ["", "my method", "-cc", "2cc", "a/b", "cc.x", None, 3, _Scaled])
def test_a_method_needs_a_name_that_can_be_written_anywhere(name: Any) -> None:
    with pytest.raises(ValueError, match=r'write @register\("name"\)'):
        register(name)


def test_only_methods_with_named_options_are_registered() -> None:
    class Positional(_Scaled):
        def __init__(self, *scales: float) -> None:
            super().__init__(*scales)
            self.scales = scales

    with pytest.raises(TypeError, match=r"Positional takes \*scales.*given by name"):
        register("test_only_positional")(Positional)
    for other in (int, make_method("cc"), len):
        with pytest.raises(TypeError, match="a subclass of Method is expected"):
            register("test_only_other")(other)  # type: ignore[arg-type]
    assert not {"test_only_positional", "test_only_other"} & set(METHODS)


@pytest.mark.parametrize("name", ["cc", "rc", "llpfc", "ot"])
def test_bags_whose_arrays_cannot_be_written_to_train_without_a_warning(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = some_data([4] * 6)
    for array in (data.bags.bag_of_row, data.bags.proportions):
        array.setflags(write=False)
    monkeypatch.setattr(torch, "from_numpy", _from_writable)
    method = make_method(name)
    method.begin(data, CPU)
    generator = torch.Generator().manual_seed(0)
    method.begin_epoch(1, generator)
    for batch in method.batches(data, 100, generator):
        assert method.loss(data.inputs[batch.rows], batch).isfinite()


def _from_writable(array: npt.NDArray[Any], make: Any = torch.from_numpy) -> torch.Tensor:
    assert array.flags.writeable  # PyTorch warns only once a process, which no test can rely on
    tensor: torch.Tensor = make(array)
    return tensor


def test_options_are_read_and_set_as_in_scikit_learn() -> None:
    method = make_method("ot", epsilon=0.5)
    assert method.get_params() == {"epsilon": 0.5, "iterations": 75}
    assert method.set_params(iterations=9) is method
    assert method.get_params() == {"epsilon": 0.5, "iterations": 9}
    with pytest.raises(ValueError, match="'ot' has no option 'eps'; it has epsilon, iterations"):
        method.set_params(eps=1)
    with pytest.raises(ValueError, match="'dllp' has no option 'eps'; it has none"):
        make_method("dllp", eps=1)


def test_options_of_a_wrong_type_are_named() -> None:
    @register("test_only_strong")
    class Strong(Method):
        def __init__(self, strength: float = 1.0, steps: int = 1, loud: bool = False) -> None:
            super().__init__()
            self.strength, self.steps, self.loud = strength, steps, loud

        def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
            return logits.sum()

    try:
        made = make_method("test_only_strong", strength=2, steps=np.int64(3), loud=np.True_)
        message = "method 'test_only_strong': strength is 'abc'; a number is expected"
        with pytest.raises(ValueError, match=message):
            make_method("test_only_strong", strength="abc")
        with pytest.raises(ValueError, match=message):
            made.set_params(strength="abc")
        for wrong in ({"steps": 1.5}, {"steps": "2"}, {"loud": "no"}, {"strength": True}):
            with pytest.raises(ValueError, match="is expected"):
                make_method("test_only_strong", **wrong)
    finally:
        del METHODS["test_only_strong"]
    with pytest.raises(ValueError, match="epsilon is -1; a number of more than 0 is expected"):
        make_method("ot", epsilon=-1)


def test_the_recorded_distance_of_weights_is_summed_over_classes() -> None:
    log_probs, bags = random_bags(1, [4, 3], 5)
    method = RC(record_gap=True)
    method.loss_given(log_probs, Batch(torch.arange(7), bags), log_probs)
    expected = 0.0
    exact, rough = (
        bag_posterior(log_probs, bags, e).weights.numpy() for e in ("exact", "multinomial")
    )
    for k in range(7):
        expected += sum(abs(exact[k, c] - rough[k, c]) for c in range(5)) / 7
    assert method.epoch_metrics() == {"weight_distance": pytest.approx(expected)}
