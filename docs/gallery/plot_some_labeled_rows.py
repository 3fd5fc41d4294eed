"""
Some labeled rows
=================

Labels of single rows are expensive, counts are cheap. How many labeled rows are counts worth, and
what do you gain from both together?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise

data = load_breast_cancer(as_frame=True)
tumors = data.data.assign(truth=np.where(data.target == 0, "malignant", "benign"))
tumors = tumors.sample(frac=1, random_state=0, ignore_index=True)
rows, new = tumors[:400].copy(), tumors[400:]
rows["ward"] = [f"ward {i // 40}" for i in range(400)]
counts = pd.crosstab(rows["ward"], rows["truth"]).reset_index()
features = list(data.feature_names)
known = dict(bag="ward", labels=counts, features=features, model="linear", progress=False)

# %%
# Ten wards of 40 patients have counts. Some patients have a label too: ``row_labels`` names the
# column that holds it, empty where it is not known.

sizes, alone, together = [0, 10, 20, 40, 80], [], []
for size in sizes:
    for seed in range(4):
        chosen = np.random.default_rng(seed).permutation(400)[:size]
        rows["known"] = rows["truth"].where(rows.index.isin(chosen))
        model = bagwise.fit(rows, **known, row_labels="known" if size else None)
        together.append(model.evaluate(new, target="truth").accuracy)
        if size:
            supervised = make_pipeline(StandardScaler(), LogisticRegression())
            supervised.fit(rows.loc[chosen, features], rows.loc[chosen, "truth"])
            alone.append(supervised.score(new[features], new["truth"]))
together, alone = np.reshape(together, (-1, 4)), np.reshape(alone, (-1, 4))

figure, axes = plt.subplots()
figure.set_label(
    "Accuracy on new patients by number of labeled patients: counts of ten wards with labels are "
    "ahead of labels alone, most where labels are few."
)
for xs, values, color, name in (
    (sizes, together, "#0072b2", "with counts of ten wards"),
    (sizes[1:], alone, "#d55e00", "labels alone"),
):
    axes.plot(xs, values.mean(axis=1), color=color)
    axes.plot(xs, values, "o", color=color, markersize=4, alpha=0.5)
    axes.annotate(
        name, (xs[-1], values.mean(axis=1)[-1]), (10, -4), color=color, textcoords="offset points"
    )
axes.grid(axis="y")
axes.grid(visible=False, axis="x")
axes.set_xlim(-3, 112)
axes.set_xticks(sizes)
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set_xlabel("labeled patients")
axes.set_title("New patients classified correctly")
plt.show()

# %%
# The same in numbers, means of four choices of the labeled patients:

print(f"counts alone: {together[0].mean():.1%}")
for size, both, labels in zip(
    sizes[1:], together[1:].mean(axis=1), alone.mean(axis=1), strict=True
):
    print(f"{size:3} labels: {labels:.1%} alone, {both:.1%} with counts")

# %%
# :doc:`Rows with known labels </how_to/known_labels>` says how labels and counts go together.
