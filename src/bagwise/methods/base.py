"""What a method is: a loss of a batch, and what it keeps between batches."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.checks import Check, Rule, any_number, flag, text
from bagwise.data import BagData
from bagwise.data.inputs import full
from bagwise.errors import BagwiseError, InputError, InputTypeError
from bagwise.methods.kept_messages import BatchMessages
from bagwise.registry import Registry


@dataclass(frozen=True)
class Batch:
    """What a training step works on.

    Attributes:
        rows: (n,) rows of the training data.
        bags: the bags these rows make up, or None where a method batches single instances.
        labels: (n,) on the model's device, -1 where a label is not known; None where none is. The
            training loop puts them here, whatever yields the batch.
        copies: (n,) on the model's device, how many identical instances each row stands for; None
            if each stands for itself. The training loop puts them here, too.
        messages: what other groupings say of the rows, where several are learned from jointly; from
            the training loop, for methods with `joins_groupings`.
        part_of: the bag of which these rows are a part, where it is too large for a batch. The
            training loop then puts into `bags` what is known of them.
        second_logits: (n, C) of a second view of the instances, where the method asks for one.
        teacher_logits: (n, C) of the averaged model, without gradient, where the method asks.
    """

    rows: torch.Tensor
    bags: Bags | None
    labels: torch.Tensor | None = None
    copies: torch.Tensor | None = None
    messages: BatchMessages | None = None
    part_of: int | None = None
    second_logits: torch.Tensor | None = None
    teacher_logits: torch.Tensor | None = None

    @property
    def n_instances(self) -> int:
        """Instances that the rows stand for."""
        if self.copies is None:
            return len(self.rows)
        return int(self.copies.sum()) if self.bags is None else self.bags.total


class Method(ABC):
    """A way of learning from bags. To add one, subclass it and write `loss`.

    >>> from bagwise.losses import dllp_loss
    >>> from bagwise.methods import register
    >>> @register("dllp_halved")
    ... class HalvedDLLP(Method):
    ...     def loss(self, logits, batch):
    ...         return dllp_loss(logits, batch.bags) / 2

    From then on `method="dllp_halved"` works everywhere. Constructor arguments become options of
    the method; keep them in attributes of the same names. Tensors that must survive between
    batches go into `self.kept`: they are part of every checkpoint.

    Attributes:
        name: by which it is found; `register` sets it.
        title: in tables and figures; the name if there is none.
        color: of its curves; if there is none, one is chosen.
        line: style of its curves, as matplotlib writes it.
        proposed: whether it is one of the paper's own, which tables compare with the others.
        needs_labels: whether it learns from labels of instances; bags then play no part.
        is_likelihood: whether its loss is the likelihood of the bags, so that a linear model may be
            fitted by maximum likelihood in its place.
        needs_teacher: whether batches should have the logits of the averaged model.
        needs_whole_bags: whether it cannot learn from parts of a bag that is larger than a batch.
        least_bags: how many bags a batch needs for it at least.
        joins_groupings: whether it can learn from several groupings jointly, with the messages of a
            batch.
        n_epochs: of the training; the training loop sets it before `begin`.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    color: ClassVar[str] = ""
    line: ClassVar[str] = "-"
    proposed: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False
    is_likelihood: ClassVar[bool] = False
    needs_teacher: bool = False
    needs_whole_bags: ClassVar[bool] = False
    least_bags: ClassVar[int] = 1
    joins_groupings: ClassVar[bool] = False
    n_epochs: int = 1

    def __init__(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options: the constructor's arguments, read from the attributes of the same names.

        As in scikit-learn, also that `deep` has no meaning where nothing is nested.
        """
        found: dict[str, Any] = {}
        for argument in inspect.signature(type(self)).parameters.values():
            if not hasattr(self, argument.name):
                raise InputTypeError(
                    f"{type(self).__name__} has no attribute {argument.name!r}; keep the "
                    "constructor's arguments in attributes of the same names: what is saved is "
                    "read from there."
                )
            value = getattr(self, argument.name)
            if argument.kind is argument.VAR_KEYWORD:
                found.update(value)
            else:
                found[argument.name] = value
        return found

    def set_params(self, **params: Any) -> Self:
        """Change options; the method begins anew with them."""
        name = self.name or type(self).__name__
        _check_options(type(self), name, params)
        self.__init__(**self.get_params() | params)  # type: ignore[misc]  # same class
        return self

    def begin(self, data: BagData, device: torch.device) -> None:  # noqa: B027, optional hook
        """Prepare for training on `data`; called once, before the first epoch or a resumed one."""

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:  # noqa: B027
        """Prepare for an epoch (the first is 1); randomness comes from `generator` alone."""

    def batches(
        self,
        data: BagData,
        instances: int,
        generator: torch.Generator,
        bags: int = 1,
        most: int | None = None,
    ) -> Iterator[Batch]:
        """Batches of an epoch: whole bags in random order, up to `instances` instances each.

        But at least `bags` bags, up to `most` instances: see `Bags.batches`. A larger bag comes in
        random parts, each a batch of its own, among the others. Where groupings are learned from
        jointly, the bags of a batch are of one of them, so that it has no row twice.
        """
        order = torch.randperm(len(data.bags), generator=generator)
        large = np.flatnonzero(data.bags.sizes > room_of(instances, bags, most))
        if not len(large) and data.shared is None:
            for index in data.bags.batches(instances, order, bags, most):
                yield Batch(torch.from_numpy(data.bags.rows(index)), data.bags.select(index))
            return
        small = order[~torch.isin(order, torch.from_numpy(large))]
        alike = [small]
        if data.shared is not None:
            grouping = data.shared.grouping[torch.tensor(data.bags.offsets[:-1])][small]
            alike = [small[grouping == g] for g in range(data.shared.n_groupings)]
        whole = [
            index
            for some in alike
            if len(some)
            for index in data.bags.batches(instances, some, bags, most)
        ]
        sizes = data.bags.sizes[large]
        n_parts = -(-sizes // room_of(instances, bags, most))
        ends = np.cumsum(sizes)
        shuffled = full(data.inputs, (int(sizes.sum()),), 0, torch.int64)
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            shuffled[end - size : end] = torch.randperm(size, generator=generator)
        which = np.repeat(np.arange(len(large)), n_parts)
        first = np.cumsum(n_parts) - n_parts  # of each bag's parts
        for place in torch.randperm(len(whole) + len(which), generator=generator).tolist():
            if place < len(whole):
                index = whole[place]
                yield Batch(torch.from_numpy(data.bags.rows(index)), data.bags.select(index))
            else:
                part = place - len(whole)
                bag = which[part]
                least, more = divmod(int(sizes[bag]), int(n_parts[bag]))
                begin, end = (
                    int(ends[bag] - sizes[bag]) + n * least + min(n, more)
                    for n in (int(part - first[bag]), int(part - first[bag]) + 1)
                )
                rows = shuffled[begin:end] + int(data.bags.offsets[large[bag]])
                yield Batch(rows, None, part_of=int(large[bag]))

    def second_view(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        """Another view of a batch's inputs, whose logits the batch should have; None for none.

        Args:
            inputs: as they are, not changed by the options' `augment`, whose logits `loss` gets.
            generator: from which all randomness comes.
        """
        return None

    @property
    def has_second_view(self) -> bool:
        """Whether it may ask for second views."""
        return type(self).second_view is not Method.second_view

    @abstractmethod
    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The mean loss per instance of a batch, from its logits (n, C)."""

    def epoch_metrics(self) -> dict[str, float]:
        """What the method measured in the epoch that ends; becomes part of the history."""
        return {}


def room_of(instances: int, bags: int = 1, most: int | None = None) -> int:
    """The largest bag that a batch has room for."""
    return instances if bags == 1 or most is None else max(instances, most)


class _Methods(Registry[type[Method]]):
    """The methods; each knows its name."""

    def __setitem__(self, name: str, cls: type[Method]) -> None:
        _check_class(cls)
        super().__setitem__(name, cls)
        cls.name = name

    def __delitem__(self, name: str) -> None:
        self[name].name = ""
        super().__delitem__(name)


_KINDS: dict[str, Check] = {
    "float": any_number,
    "int": Rule("a whole number", lambda v: isinstance(v, Integral) and not isinstance(v, bool)),
    "bool": flag,
    "str": text,
}
METHODS = _Methods("method", "bagwise.methods")
register = METHODS.register


def _check_class(cls: Any) -> None:
    """The class can be made from settings by name, which is how it is found when loaded."""
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise InputTypeError(
            f"{cls!r} is registered as a method; a subclass of Method is expected."
        )
    if cls.color and not re.fullmatch(r"#[0-9a-fA-F]{6}|[a-zA-Z]+[0-9]?", cls.color):
        raise InputError(
            f"the color of {cls.__name__} is {cls.color!r}; a name such as 'red' or six digits "
            "such as '#6a0dad' are expected."
        )
    for argument in inspect.signature(cls).parameters.values():
        if argument.kind in (argument.POSITIONAL_ONLY, argument.VAR_POSITIONAL):
            raise InputTypeError(
                f"the constructor of {cls.__name__} takes {argument} by position; options of a "
                "method are given by name."
            )


def takes(method: str, option: str) -> bool:
    """Whether a method has an option of that name."""
    return option in inspect.signature(METHODS[method]).parameters


def _check_options(cls: type[Method], name: str, options: Mapping[str, Any]) -> None:
    """Refuse unknown options, and values of another type where the constructor names a simple one.

    A constructor that takes any option hands them to the engine, which checks them.
    """
    arguments = inspect.signature(cls).parameters
    takes_any = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    for option, value in options.items():
        if option in arguments:
            kind = arguments[option].annotation
            rule = _KINDS.get(kind if isinstance(kind, str) else getattr(kind, "__name__", ""))
            if rule is not None:
                rule(value, f"method {name!r}: {option}")
        elif not takes_any:
            has = f"it has {', '.join(arguments)}" if arguments else "it has none"
            raise InputError(f"method {name!r} has no option {option!r}; {has}.")


def make_method(method: Any, **options: Any) -> Method:
    """The method with that name, with its options; a `Method` is returned as it is.

    >>> make_method("ot", epsilon=0.5).epsilon
    0.5
    """
    if isinstance(method, type):
        raise InputTypeError(f"method is the class {method.__name__}; pass {method.__name__}().")
    if isinstance(method, Method):
        if options:
            raise InputTypeError(
                f"method is made already, and {', '.join(options)} would be ignored; "
                f"give {type(method).__name__} its options when it is made."
            )
        made = method
    else:
        cls = METHODS[method]
        _check_options(cls, method, options)
        try:
            made = cls(**options)
        except BagwiseError:
            raise
        except (TypeError, ValueError) as error:  # what it says of the options, if there are any
            if not options:
                raise
            refused = InputTypeError if isinstance(error, TypeError) else InputError
            raise refused(f"method {method!r}: {error}") from error
    if not hasattr(made, "kept"):
        raise InputTypeError(
            f"the constructor of {type(made).__name__} does not call super().__init__(); a "
            "Method's has to."
        )
    made.get_params()  # an author's mistake shows now, not when hours of training are saved
    return made
