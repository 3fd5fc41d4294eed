"""What a fit found, in English: for the terminal, notebooks and pages alike.

Facts are codes and numbers (`bagwise.tables.model.fit_facts`); only here are they worded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from bagwise.errors import Option
from bagwise.wording import counted, table_words
from bagwise.wording.table_words import label_numbers

if TYPE_CHECKING:
    from bagwise.tables.encode.columns import LeftOut
    from bagwise.tables.model.fit_facts import FitFacts, FitSettings, Tried
    from bagwise.tables.model.table_facts import DataFacts

_MODELS = {"linear": "linear model", "mlp": "perceptron"}
_SURE = {True: "too sure of itself", False: "not sure enough"}
WordOption: TypeAlias = Callable[[Option], str]
"""How the reader names an option; `str` as Python does."""
_MOST_BAGS = 8  # that are named
BY_CLASS = ("class", "overall share", "mean error", "correlation")  # what `by_class` shows


def verdict(facts: FitFacts, word_option: WordOption = str) -> str:
    """How far the model can be trusted, judged by bags it has not seen."""
    parts = [
        _errors(facts),
        _found(facts),
        _trust(facts),
        _coefficients(facts),
        _overconfidence(facts),
        _bag_effects(facts, word_option),
        _context(facts, word_option),
    ]
    return " ".join(filter(None, parts))


def _found(facts: FitFacts) -> str:
    """Whether the model beats the overall shares; where errors of shares say otherwise, why."""
    overall = _overall(facts)
    ours, guessed = (_mean(e) for e in (facts.held_out.error, facts.held_out.baseline_error))
    closer = None if ours is None or guessed is None else ours < guessed
    bags = counted(facts.held_out.n_bags, "bag", "bags")
    if facts.verdict == "learned":
        but = "Even so, the" if closer is False else "The"
        return (
            f"{but} model beats {overall}: it makes the counts of these bags more likely, by more "
            "than chance explains."
        )
    if facts.verdict == "chance":
        return (
            f"The model may beat {overall} only by chance: with {bags}, the gain in the likelihood "
            "of the counts is too small to tell. Do not rely on it without more bags."
        )
    but = "Even so, the" if closer else "The"
    return (
        f"{but} model does not beat {overall}: it makes the counts of these bags no more likely. "
        "Do not use it. The columns may say little about the classes, or the bags may be too few "
        "or too similar."
    )


def _trust(facts: FitFacts) -> str:
    """That predictions are pulled toward the overall shares."""
    if facts.settings.trust == 1:
        return ""
    return (
        f"Because held-out bags prefer {_overall(facts)}, these have a weight of "
        f"{1 - facts.settings.trust:.0%} in its predictions."
    )


def _overall(facts: FitFacts) -> str:
    """What a model is compared with."""
    return "the overall shares" + " with bag effects" * (facts.settings.bag_effects is not None)


def _coefficients(facts: FitFacts) -> str:
    """That bags do not determine the coefficients, and what follows."""
    if not facts.is_undetermined:
        return ""
    return (
        f"It has {_coefficients_from_bags(facts)}, which do not determine them all: probabilities "
        "of single rows depend partly on the prior, and intervals may be too narrow."
    )


def _coefficients_from_bags(facts: FitFacts) -> str:
    coefficients = counted(facts.coefficients or 0, "coefficient", "coefficients")
    return f"{coefficients} from {counted(facts.data.n_bags, 'bag', 'bags')}"


def coefficients_note(facts: FitFacts, of_intervals: bool = False) -> str:
    """A line for those who use the model: too many coefficients; empty if there are not.

    Args:
        facts: of the fit.
        of_intervals: for effects and shares with intervals; otherwise for predictions.
    """
    if of_intervals and "many_coefficients" in facts.limitations:
        return f"{_coefficients_from_bags(facts)}: intervals may be too narrow."
    if facts.is_undetermined:
        rest = "probabilities of single rows depend partly on the prior."
        return f"{_coefficients_from_bags(facts)}: {rest}"
    return ""


def doubt(facts: FitFacts) -> str:
    """A line for those who use the model: why to doubt it; empty where all is well."""
    if facts.verdict == "nothing":
        return f"this model does not beat {_overall(facts)}."
    if facts.verdict == "chance":
        return f"this model may beat {_overall(facts)} only by chance."
    if facts.is_overconfident:
        return (
            f"this model is too sure of itself: only {facts.held_out.covered(0.95):.0%} of the "
            "held-out counts lie in their 95% intervals."
        )
    return ""


def likelihood(facts: FitFacts) -> str:
    """The numbers behind the verdict."""
    held_out = facts.held_out
    low, high = held_out.gain_interval
    return (
        f"Log-likelihood per row of held-out bags: {held_out.log_likelihood:.4f}; "
        f"{_overall(facts)}: {held_out.baseline:.4f}. The difference is {held_out.gain:+.4f} (95% "
        f"interval {low:+.4f} to {high:+.4f})."
    )


def paragraphs(facts: FitFacts, word_option: WordOption = str) -> list[str]:
    """Verdict, calibration and limitations, as far as there is something to say."""
    limits = "; ".join(limitations(facts).values())
    limits = f"Limitations: {limits}." if limits else ""
    return [x for x in (verdict(facts, word_option), calibration(facts), limits) if x]


def summary(facts: FitFacts, columns_left_out: Mapping[str, LeftOut]) -> str:
    """What was learned from and what was not, what was chosen, and how far to trust it."""
    data = facts.data
    rows = f"{data.rows_used:,} rows"
    if data.rows_used < data.rows:
        rows = f"{data.rows_used:,} of {data.rows:,} rows"
    return "\n".join(
        [
            f"{rows} in {data.n_bags:,} bags, {data.n_features} features",
            *([f"Groupings: {groupings(data)}"] if data.groupings else []),
            *left_out(facts, columns_left_out),
            f"Model: {settings(facts.settings)}",
            "",
            *(
                f"{n[:20]:<20} {s:>13} {e:>11} {r:>12}"
                for n, s, e, r in (BY_CLASS, *by_class(facts))
            ),
            "",
            *paragraphs(facts),
            likelihood(facts),
        ]
    )


def left_out(facts: FitFacts, columns: Mapping[str, LeftOut]) -> list[str]:
    """Which bags and columns were not learned from, a line for each kind."""
    data, names = facts.data, facts.data.bags_left_out_names[:_MOST_BAGS]
    lines = []
    if data.bags_left_out:
        more = ", ..." if data.bags_left_out > len(names) else ""
        lines.append(f"Bags left out: {data.bags_left_out:,} ({', '.join(names)}{more})")
    why = (f"{name} ({table_words.left_out(reason)})" for name, reason in columns.items())
    return lines + ([f"Columns left out: {', '.join(why)}"] if columns else [])


def _errors(facts: FitFacts) -> str:
    """How far predicted shares are off, and those of someone who guesses the overall ones."""
    own, guessed = (_mean(e) for e in (facts.held_out.error, facts.held_out.baseline_error))
    if own is None or guessed is None:
        return ""
    off = f"{_points(own)} points"
    if facts.data.inexact_bags:
        off += " from the given ones"
    return (
        f"On bags it has not seen, predicted shares are off by {off} on average; guessing the "
        f"overall shares is off by {_points(guessed)}."
    )


def _mean(errors: Sequence[float | None]) -> float | None:
    """Over the classes of which it is known."""
    known = [x for x in errors if x is not None]
    return sum(known) / len(known) if known else None


def _points(error: float) -> str:
    return f"{100 * error:.1f}" if error < 0.0995 else f"{100 * error:.0f}"


def _overconfidence(facts: FitFacts) -> str:
    """That intervals are too narrow, and why, as far as that is known."""
    if not facts.is_overconfident:
        return ""
    few = "there are too few bags, or the model has the wrong form."
    why = {
        True: "Bags differ by more than their rows explain, so what holds between bags may not "
        "hold within them.",
        False: f"Perhaps {few}",
        None: f"Perhaps bags differ by more than their rows explain, {few}",
    }[facts.bags_vary]
    covered = facts.held_out.covered(0.95)
    return (
        f"The model is too sure of itself: only {covered:.0%} of the counts lie in their 95% "
        f"intervals. {why}"
    )


def _bag_effects(facts: FitFacts, word_option: WordOption) -> str:
    """What bag effects do here, or might do."""
    option = word_option(Option("bag_effects", True))
    offer = f"Try bag effects, {option} of fit: each bag gets its own intercept."
    differ = facts.bags_differ
    if facts.bag_effects == "idle":
        return "Bags do not differ by more than their rows explain: the bag effects do nothing."
    if facts.bag_effects == "advised" and differ is not None:
        p = "p < 0.001" if differ.p_value < 0.001 else f"p = {differ.p_value:.3f}"
        return (
            f"Beyond what their rows explain, log-odds vary by {differ.log_odds:.2f} between "
            f"bags ({p}). {offer}"
        )
    return offer if facts.bag_effects == "possible" else ""


def _context(facts: FitFacts, word_option: WordOption) -> str:
    """What columns of bags are good for."""
    if facts.context is None or facts.context.gain is None or not facts.context.columns:
        return ""
    names, gain = _few(facts.context.columns), f"{facts.context.gain:+.4f} per row"
    if facts.context.helps:
        return f"Context ({names}) makes held-out bags more likely: log-likelihood {gain}."
    option = word_option(Option("context"))
    return (
        f"Context ({names}) does not make held-out bags clearly more likely: log-likelihood "
        f"{gain}. Fit without {option}."
    )


def calibration(facts: FitFacts) -> str:
    """How far intervals and probabilities can be believed; empty if nothing is known of it."""
    held_out = facts.held_out
    text = ""
    if held_out.coverage:
        levels = sorted(held_out.coverage, key=lambda c: -c.level)
        # The verdict has said how many lie in the widest ones, where they are too few.
        first, *others = levels[1:] if facts.is_overconfident and len(levels) > 1 else levels
        text = f"{first.share:.0%} of the held-out counts lie in their {first.level:.0%} intervals"
        text += "".join(f", {c.share:.0%} in the {c.level:.0%} ones" for c in others)
        text = f"Calibration: {text}."
    if held_out.covered_bags == 0:
        text = "Calibration: unknown, because no counts are exact."
    elif held_out.covered_bags is not None and held_out.covered_bags < held_out.n_bags:
        text += f" This is about the {counted(held_out.covered_bags, 'bag', 'bags')} of the label "
        text += "file with exact counts."
    return f"{text} {temperature(facts.settings)}".strip()


def temperature(settings: FitSettings) -> str:
    """Why logits were divided by a number; empty if they were not."""
    if settings.temperature == 1:
        return ""
    return (
        f"Its log-odds were divided by {settings.temperature:.2f}: on held-out bags the model was "
        f"{_SURE[settings.temperature > 1]}."
    )


def model_name(name: str) -> str:
    """What a kind of model is called.

    >>> model_name("mlp")
    'perceptron'
    """
    return _MODELS.get(name, name)


def settings(chosen: FitSettings) -> str:
    """The model that was chosen, and how it was fitted."""
    name = model_name(chosen.model)
    if chosen.ridge is not None:
        if chosen.log_odds is not None:
            name += f" with bag effects (log-odds vary by {chosen.log_odds:.2f})"
        name += " of all groupings together" * chosen.joint
        if chosen.averaged:
            return f"{name}, averaged over its prior (most probable ridge {chosen.ridge:.3g})"
        return f"{name}, by maximum likelihood with ridge {chosen.ridge:.3g}"
    epochs = counted(chosen.epochs or 0, "epoch", "epochs")
    return f"{name}, {chosen.method}, learning rate {chosen.lr:g}, {epochs}"


def candidate(tried: Tried, folds: int) -> str:
    """What was tried with a model; `folds` is how many there are."""
    parts = ["bag effects"] * (tried.tau is not None)
    parts += ["all groupings together"] * tried.joint
    if tried.ridge is not None:
        parts.append(f"ridge {tried.ridge:.3g}")
    if tried.lr is not None:
        parts.append(f"learning rate {tried.lr:g}")
    if tried.epochs is not None:
        parts.append(counted(tried.epochs, "epoch", "epochs"))
    if tried.folds is not None:
        parts.append(f"stopped after {tried.folds} of {folds} folds")
    return ", ".join(parts + ["only some of the bags"] * tried.some_bags)


def rows(data: DataFacts) -> str:
    """How many rows were used, of how many; those with weights as often as they stand for rows."""
    text = f"{data.rows_used:,} of {data.rows:,}"
    if data.table_rows is not None:
        of_table = counted(data.table_rows, "row", "rows")
        text += f", in {of_table} of the table (row counts in {data.weights})"
    return text


def groupings(data: DataFacts) -> str:
    """Several ways in which rows were counted; empty where there is one."""
    parts = []
    for g in data.groupings:
        few = f", {g.rows:,} rows" * (g.rows < data.rows_used)
        inexact = f", {label_numbers(g.labels)}" if g.inexact_bags else ""
        parts.append(f"{g.name} ({counted(g.n_bags, 'bag', 'bags')}{few}{inexact})")
    return "; ".join(parts)


def given_numbers(data: DataFacts) -> str:
    """What the numbers of label files are, where they are not exact; empty if nobody knows."""
    if data.groupings:
        inexact = (g for g in data.groupings if g.inexact_bags)
        return "; ".join(f"{label_numbers(g.labels)} of {g.name}" for g in inexact)
    return label_numbers(data.labels) if data.labels else ""


def knowledge(data: DataFacts) -> str:
    """How labels are known, where that is not by exact counts alone; empty where it is."""
    text = ""
    if data.inexact_bags:
        some = f" in {data.inexact_bags:,} of {data.n_bags:,} bags"
        text = f"The counts are not exact{some * (data.inexact_bags < data.n_bags)}."
        given = given_numbers(data)
        text += f" Given are {given}." * bool(given)
    if data.labeled_rows:
        text += f" The labels of {counted(data.labeled_rows, 'row', 'rows')} are known."
    return text.strip()


def true_or_given(data: DataFacts) -> str:
    """What shares of bags are called: true ones are not known where counts are not exact."""
    return "given" if data.inexact_bags else "true"


def limitations(facts: FitFacts) -> dict[str, str]:
    """What keeps one from knowing more, by its code."""
    found, bags = facts.limitations, counted(facts.data.n_bags, "bag", "bags")
    sentences = {
        "few_bags": f"only {bags}",
        "many_coefficients": f"{_coefficients_from_bags(facts)}, so intervals may be too narrow",
        "large_bags": f"large bags (median {found.get('large_bags', 0):,.0f} rows), whose shares "
        "say little about single rows",
        "rare_classes": f"classes with fewer than ten rows: {_few(found.get('rare_classes', []))}",
        "bags_left_out": f"{counted(found.get('bags_left_out', 0), 'bag', 'bags')} left out, "
        "found in only one of the files",
        "rounding": "proportions were rounded to counts, changing by up to "
        f"{found.get('rounding', 0):.1%}",
    }
    said = ["many_coefficients"] * facts.is_undetermined  # by the verdict
    return {code: sentences[code] for code in found if code not in said}


def by_class(facts: FitFacts) -> list[list[str]]:
    """A row of text for each class, see `BY_CLASS`."""
    return [
        [
            name,
            f"{share:.1%}",
            "-" if error is None else f"{error:.1%}",
            "-" if r is None else f"{r:.2f}",
        ]
        for name, share, error, r in zip(
            facts.data.classes,
            facts.data.shares,
            facts.held_out.error,
            facts.held_out.correlation,
            strict=True,
        )
    ]


def _few(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
