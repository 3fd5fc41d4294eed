"""Random calls of every engine and of the labeling, over sizes, scales, precisions, ties and -inf.

What an engine says is proved of its answer (`Posterior.bound`) is compared with the exact one.

    python fuzz/engines.py --calls 1000000 --seed 0

Calls are made in a child process, which says what it is about to do: a call that does not end
within five minutes, raises something unexpected, warns of something unexpected or returns what
cannot be right is reported with the seed that does it again (`--again SEED`). Exit code 1 if there
was any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import sys
import traceback
import warnings

import numpy as np
import torch
from rich.progress import track

from bagwise import Bags, bag_posterior, most_probable_labeling
from bagwise.posterior import ENGINES, lattice_states

PATIENCE = 300.0  # seconds for a call, which may compile a kernel
PART = 500  # calls a child makes before it says so
ENTRIES = 4000  # numbers in a call, at most: most calls are small, so that there can be many
EXACT_STATES = 2e5
SCALES = (0.0, 0.1, 1.0, 5.0, 30.0, 150.0, 1e3, 1e6, 1e12, 1e30)
PRECISIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FEWER = (1.01, 2.0, 8.0)  # times fewer states than a bag's lattice has: `auto` has to prune it
LARGEST = 1e6  # of log-probabilities beyond which rounding alone moves weights
TOLERATED = ("belief propagation did not converge",)


def problem(rng: np.random.Generator) -> tuple[torch.Tensor, Bags]:
    """Log-probabilities and bags, from ordinary to absurd."""
    C = int(rng.integers(1, 21))
    largest = int(rng.choice([3, 20, 60, 200]))
    sizes = rng.integers(1, largest + 1, size=rng.integers(1, 5))
    while sizes.sum() * C > ENTRIES and len(sizes) > 1:
        sizes = sizes[:-1]
    N = int(sizes.sum())
    labels = rng.integers(C, size=N)
    if rng.random() < 0.3:  # some classes are rare
        labels = np.minimum(rng.geometric(0.5, size=N) - 1, C - 1)
    logits = rng.choice(SCALES) * rng.standard_normal((N, C))
    if rng.random() < 0.3:  # informed
        logits[np.arange(N), labels] += rng.choice(SCALES)
    if rng.random() < 0.2:  # one class of another scale
        logits[:, rng.integers(C)] *= rng.choice(SCALES)
    if rng.random() < 0.2:  # ties
        logits = np.round(logits)
    if rng.random() < 0.1:  # equal instances
        logits[:] = logits[rng.integers(N)]
    if rng.random() < 0.15:  # impossible labels, the counts staying possible
        forbidden = rng.random((N, C)) < rng.choice([0.1, 0.5, 0.9])
        forbidden[np.arange(N), labels] = False
        logits[forbidden] = -np.inf
    log_probs = torch.from_numpy(logits)
    if rng.random() < 0.7:
        log_probs = log_probs.log_softmax(-1)
    dtype = PRECISIONS[rng.integers(len(PRECISIONS))]
    smallest = torch.finfo(dtype)
    log_probs = torch.where(
        log_probs.isinf(), log_probs, log_probs.clamp(smallest.min, smallest.max)
    ).to(dtype)
    return log_probs, Bags.from_labels(labels, sizes, n_classes=C)


def call(seed: int) -> None:
    """One random call, and what must hold of its answer."""
    rng = np.random.default_rng(seed)
    log_probs, bags = problem(rng)
    name = [*ENGINES, "labeling"][rng.integers(len(ENGINES) + 1)]
    if name == "exact" and lattice_states(bags).max() > EXACT_STATES:
        name = "auto"
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        if name == "labeling":
            check_labeling(log_probs, bags)
        else:
            check_posterior(log_probs, bags, name)
            if name in ("exact", "auto", "bethe"):
                check_bound(log_probs, bags, float(rng.choice(FEWER)))
    for warning in noted:
        if not str(warning.message).startswith(TOLERATED):
            raise AssertionError(f"warning: {warning.message}")


def check_labeling(log_probs: torch.Tensor, bags: Bags) -> None:
    """The labels have the counts, and none that is impossible."""
    labels = most_probable_labeling(log_probs, bags)
    assert Bags.from_labels(labels, bags.sizes, bags.n_classes) == bags, "other counts"
    assert (log_probs[torch.arange(len(labels)), labels] > -torch.inf).all(), "an impossible label"


def check_posterior(log_probs: torch.Tensor, bags: Bags, engine: str) -> None:
    """Finite, rows sum to 1, columns to the counts, nothing impossible; a finite gradient."""
    log_probs = log_probs.requires_grad_()
    post = bag_posterior(log_probs, bags, engine=engine)
    post.log_likelihood.sum().backward()
    weights = post.weights.double()
    assert weights.isfinite().all(), "weights are not finite"
    assert (weights >= 0).all(), "negative weights"
    assert (weights.sum(1) - 1).abs().max() < 1e-5, "rows do not sum to 1"
    assert (weights[log_probs == -torch.inf] == 0).all(), "weight on an impossible label"
    assert not post.log_likelihood.isnan().any(), "the log-likelihood is NaN"
    if engine in ("exact", "bethe", "auto"):
        columns = np.add.reduceat(weights.numpy(), bags.offsets[:-1], axis=0)
        off = np.abs(columns - bags.counts).max()
        assert off < 1e-4 + 1e-6 * bags.sizes.max(), f"columns are off by {off:.2g}"
    if log_probs.dtype == torch.float64:
        assert torch.isfinite(log_probs.grad).all(), "the gradient is not finite"


def check_bound(log_probs: torch.Tensor, bags: Bags, fewer: float) -> None:
    """What `auto` says is proved of each bag is true, where the exact answer can be had."""
    log_probs = log_probs.detach().double()
    states = lattice_states(bags)
    limit = states[states <= EXACT_STATES].max(initial=1.0) / fewer
    post = bag_posterior(log_probs, bags, "auto", max_states=max(int(limit), 1))
    assert post.bound is not None
    bound = post.bound.numpy()
    proved = bound < np.inf
    assert (bound >= 0).all(), "a bound is negative or NaN"
    assert (bound[proved] <= 5e-7).all(), "a bound is above the tolerance"
    assert [engine != "bethe" for engine in post.engine] == proved.tolist(), "another engine's"
    small = proved & (states <= EXACT_STATES)
    finite = log_probs[log_probs > -torch.inf].abs().max().item()
    if not small.any() or finite > LARGEST:
        return
    index = np.flatnonzero(small)
    rows = np.isin(bags.bag_of_row, index)
    exact = bag_posterior(log_probs[torch.from_numpy(rows)], bags.select(index), "exact")
    assert (exact.bound == 0).all(), "exact, but not proved"
    rounding = 1e-9 + 1e-14 * bags.sizes[index] * finite
    off = exact.log_likelihood.numpy() - post.log_likelihood.numpy()[index]
    assert (off >= -rounding).all(), f"P(S|X) is {-off.min():.2g} too large"
    assert (off <= np.log1p(bound[index]) + rounding).all(), "P(S|X) is outside of its bound"
    distance = np.abs(exact.weights.numpy() - post.weights.numpy()[rows]).sum(1)
    most = np.repeat(2 * bound[index] + rounding, bags.sizes[index])
    assert (distance <= most).all(), f"weights are {(distance - most).max():.2g} outside"


def work(pipe: multiprocessing.connection.Connection) -> None:
    """Make the calls that are asked for, each announced before it is made."""
    torch.set_num_threads(1)
    while (part := pipe.recv()) is not None:
        for seed in part:
            pipe.send(("begin", seed))
            try:
                call(seed)
            except Exception:
                pipe.send(("failed", traceback.format_exc()))
        pipe.send(("done", len(part)))


def search(seeds: range) -> list[tuple[int, str]]:
    """Make all calls in a child process, which is replaced where a call does not end."""
    failures: list[tuple[int, str]] = []
    context = multiprocessing.get_context("spawn")
    parts = [seeds[i : i + PART] for i in range(0, len(seeds), PART)]
    pipe, child = None, None
    for part in track(parts, description="engines"):
        waiting = list(part)
        while waiting:
            if child is None:
                pipe, theirs = context.Pipe()
                child = context.Process(target=work, args=(theirs,), daemon=True)
                child.start()
            pipe.send(waiting)
            current = waiting[0]
            while True:
                if not pipe.poll(PATIENCE):
                    what = "it does not end"
                elif (message := pipe.recv())[0] == "done":
                    waiting = []
                    break
                elif message[0] == "begin":
                    current = message[1]
                    continue
                else:
                    failures.append((current, message[1]))
                    print(f"seed {current}: {message[1]}", file=sys.stderr)
                    continue
                failures.append((current, what))
                print(f"seed {current}: {what}", file=sys.stderr)
                child.kill()
                child = None
                waiting = waiting[waiting.index(current) + 1 :]
                break
    if child is not None:
        pipe.send(None)
        child.join()
    return failures


def main() -> None:
    """Search, or make one call again."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--again", type=int, help="make the call with this seed again")
    options = parser.parse_args()
    if options.again is not None:
        call(options.again)
        return
    failures = search(range(options.seed, options.seed + options.calls))
    print(f"{options.calls:,} calls, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
