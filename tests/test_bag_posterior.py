"""The interface: types, devices, threads, processes, input errors."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bagwise
from bagwise import Bags, bag_posterior
from bagwise.posterior import ENGINES, _kernels, lattice_states
from oracles import informed_bags, random_bags


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_floating_type_is_taken(engine: str, dtype: torch.dtype) -> None:
    log_probs, bags = random_bags(0, [3, 5], 3)
    rough = log_probs.to(dtype).requires_grad_()
    post = bag_posterior(rough, bags, engine=engine)
    expected = torch.float64 if dtype is torch.float64 else torch.float32
    assert post.log_likelihood.dtype == post.weights.dtype == expected
    reference = bag_posterior(rough.detach().double(), bags, engine=engine)
    torch.testing.assert_close(post.weights.double(), reference.weights, atol=1e-6, rtol=0)
    post.log_likelihood.sum().backward()
    assert rough.grad.dtype == dtype


@pytest.mark.parametrize("engine", list(ENGINES))
def test_without_gradients_nothing_is_recorded(engine: str) -> None:
    log_probs, bags = random_bags(0, [3, 5], 3)
    with torch.no_grad():
        post = bag_posterior(log_probs.requires_grad_(), bags, engine=engine)
    assert not post.log_likelihood.requires_grad
    assert not bag_posterior(log_probs, bags, engine=engine).weights.requires_grad


def test_it_composes_with_a_model() -> None:
    torch.manual_seed(0)
    _, bags = random_bags(0, [4, 4], 3)
    model = torch.nn.Linear(5, 3)
    inputs = torch.randn(8, 5)
    log_probs = model(inputs).log_softmax(-1)
    post = bag_posterior(log_probs, bags)
    (-post.log_likelihood.sum()).backward()
    # The chain rule by hand: cross-entropy against the weights has the same gradient.
    expected = torch.autograd.grad(
        -(post.weights * model(inputs).log_softmax(-1)).sum(), model.weight
    )
    torch.testing.assert_close(model.weight.grad, expected[0])


@pytest.fixture
def set_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, which then take part in any call, however small."""
    monkeypatch.setattr(_kernels, "_WORTH_A_THREAD", 1)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


class _Watched:
    """Remembers which threads ran a part of the bags."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        original = _kernels.ThreadPoolExecutor.submit

        def submit(pool: Any, run: Callable[..., None], part: Any) -> Any:
            def watched(part: Any) -> None:
                self.names.add(threading.current_thread().name)
                run(part)

            return original(pool, watched, part)

        monkeypatch.setattr(_kernels.ThreadPoolExecutor, "submit", submit)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "device"])
def test_the_answer_does_not_depend_on_the_number_of_threads(
    engine: str, set_threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs, bags = informed_bags(0, 16, 120, 2.0)
    watched = _Watched(monkeypatch)
    answers = []
    for threads in (1, 2, 3, 7):
        set_threads(threads)
        watched.names.clear()
        answers.append(bag_posterior(log_probs, bags, engine=engine))
        assert bool(watched.names) == (threads > 1)
        assert all(name.startswith("bagwise") for name in watched.names)
    for answer in answers[1:]:
        assert torch.equal(answer.weights, answers[0].weights)
        assert torch.equal(answer.log_likelihood, answers[0].log_likelihood)


def test_auto_takes_exact_for_small_lattices_and_bethe_for_large_ones() -> None:
    log_probs, bags = random_bags(1, [5, 60, 3, 70, 4], 4)
    auto = bag_posterior(log_probs, bags, engine="auto", max_states=1000)
    small, large = [0, 2, 4], [1, 3]
    for engine, index in (("exact", small), ("bethe", large)):
        rows = torch.from_numpy(bags.rows(index))
        alone = bag_posterior(log_probs[rows], bags.select(index), engine=engine)
        assert torch.equal(auto.weights[rows], alone.weights)
        assert torch.equal(auto.log_likelihood[index], alone.log_likelihood)


def test_auto_is_exact_for_two_classes_in_large_bags() -> None:
    log_probs, bags = random_bags(2, [1500], 2)
    auto = bag_posterior(log_probs, bags, max_states=10)
    assert torch.equal(auto.weights, bag_posterior(log_probs, bags, engine="exact").weights)


def _weights_in_child(log_probs: torch.Tensor, bags: Bags, queue: multiprocessing.Queue) -> None:
    queue.put(bag_posterior(log_probs, bags).weights.numpy())


# Python warns of any fork in a process with threads, which is the very situation tested here.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_child_can_compute_too(set_threads: Callable[[int], None]) -> None:
    log_probs, bags = informed_bags(0, 16, 40, 2.0)
    set_threads(2)
    expected = bag_posterior(log_probs, bags).weights.numpy()
    assert _kernels._pool is not None  # its threads do not exist in the child
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_weights_in_child, args=(log_probs, bags, queue))
    child.start()
    found = queue.get(timeout=60)
    child.join(timeout=60)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_a_new_process_does_not_compile_again() -> None:
    code = """
import torch
from bagwise import Bags, bag_posterior
from bagwise.posterior import ENGINES, bethe, exact, multinomial, transport
for engine in ENGINES:
    bag_posterior(torch.randn(60, 4), Bags([6] * 10, [[2, 1, 2, 1]] * 10), engine=engine)
for compiled in (exact._exact, bethe._bethe, multinomial._multinomial, transport._transport):
    assert sum(compiled.stats.cache_misses.values()) == 0, compiled
    assert sum(compiled.stats.cache_hits.values()) == 1, compiled
"""
    for engine in ENGINES:  # make sure that this process has filled the cache
        bag_posterior(torch.randn(6, 4), Bags([6], [[2, 1, 2, 1]]), engine=engine)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_where_no_cache_can_be_written_kernels_are_compiled_in_memory(tmp_path: Path) -> None:
    package = tmp_path / "bagwise"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(bagwise.__file__).parent, package, ignore=ignored)
    for folder in {source.parent for source in package.rglob("*.py")}:
        (folder / "__pycache__").write_text("a file, so that no folder can be made here")
    code = """
import torch
from bagwise import Bags, bag_posterior
from bagwise.posterior import multinomial
bag_posterior(torch.zeros(2, 2), Bags([2], [[1, 1]]), engine="multinomial")
assert multinomial._multinomial.stats.cache_path is None
print(multinomial.__file__)
"""
    nowhere = str(tmp_path / "bagwise" / "__pycache__" / "x")
    places = {"NUMBA_CACHE_DIR": nowhere, "XDG_CACHE_HOME": nowhere, "HOME": nowhere}
    environment = {**os.environ, **places, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (torch.zeros(4, 2), r"shape \(4, 2\).* 5 instances and 2 classes; \(5, 2\)"),
        (torch.zeros(5), r"shape \(5,\)"),
        (torch.zeros(5, 2, dtype=torch.int64), "int64"),
        (torch.tensor([[0.0, 0]] * 3 + [[0, float("nan")], [0, 0]]), r"\[3, 1\] is nan \(bag 1\)"),
        (torch.tensor([[0.0, 0]] * 4 + [[float("inf"), 0]]), r"\[4, 0\] is inf"),
    ],
)
@pytest.mark.parametrize("engine", list(ENGINES))
def test_bad_log_probabilities_are_named(
    engine: str, log_probs: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bag_posterior(log_probs, Bags([3, 2], [[2, 1], [1, 1]]), engine=engine)


def test_other_objects_are_refused() -> None:
    bags = Bags([1], [[1]])
    with pytest.raises(TypeError, match=r"is a list; a numpy.ndarray or a torch.Tensor is"):
        bag_posterior([[0.0]], bags)
    with pytest.raises(TypeError, match="list"):
        bag_posterior(torch.zeros(1, 1), [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'magic'; choose one of auto, exact, bethe"):
        bag_posterior(torch.zeros(1, 1), bags, engine="magic")
    with pytest.raises(ValueError, match="'bethe' has no option 'epsilon'; it takes correction"):
        bag_posterior(torch.zeros(1, 1), bags, engine="bethe", epsilon=1)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("exact", {"max_states": "x"}),
        ("auto", {"max_states": float("nan")}),
        ("auto", {"max_states": -1}),
        ("bethe", {"tolerance": "x"}),
        ("bethe", {"max_iterations": 1.5}),
        ("bethe", {"correction": "no"}),
        ("transport", {"epsilon": "abc"}),
        ("transport", {"iterations": 0}),
    ],
)
def test_an_option_that_an_engine_cannot_use_is_named(engine: str, options: dict[str, Any]) -> None:
    log_probs, bags = random_bags(1, [3, 2], 3)
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=rf"{name} is {value!r}; .* is expected"):
        bag_posterior(log_probs, bags, engine, **options)


@pytest.mark.filterwarnings("error")
def test_a_lattice_beyond_all_numbers_has_infinitely_many_states() -> None:
    assert lattice_states(Bags([4000], [[1] * 4000])).tolist() == [np.inf]
