"""The settings that trials may have: the draws of a search that satisfy all relations of the file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from orchestrator.config.document import Path, Violation, nearest
from orchestrator.config.relations import Relation, RelationError, is_number, read_relation
from orchestrator.config.sections import ModelSection
from orchestrator.config.space import Distribution, active, combinations, recorded_space, size
from trainables.layers import LAYERS
from trainables.settings import range_ends

MOST_LISTED = 100_000
"""Number of combinations up to which a space is enumerated, to count those that satisfy the relations."""

_SHOWN_DRAWS = 1_000

MOST_DRAWS = 10_000
"""Number of random draws after which a search for one that satisfies the relations ends."""


@dataclass(frozen=True)
class FeasibleSpace:
    """A search space with the relations between its hyperparameters and the other values of a file.

    Attributes:
        search: Ordered space.
        relations: Relations that every setting satisfies.
        known: Values of the file that are not searched, by name, for the layer of a setting or `None`.
        layer: Layer of a setting that draws none.
    """

    search: Mapping[str, Distribution]
    relations: tuple[Relation, ...] = ()
    known: Mapping[str | None, Mapping[str, Any]] = field(default_factory=dict)
    layer: str | None = None

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> FeasibleSpace:
        """Return the feasible space of a sweep's document."""
        relations = tuple(read_relation(text) for text in document.get("require", ()))
        return cls.of(recorded_space(document["search"]), relations, document)

    @classmethod
    def of(
        cls,
        search: Mapping[str, Distribution],
        relations: tuple[Relation, ...],
        sections: Mapping[str, Any],
    ) -> FeasibleSpace:
        """Return the feasible space of a search and of the sections `model`, `training` and `fixed`."""
        if not relations:
            return cls(search)
        others = {**sections.get("training", {}), **sections.get("fixed", {})}
        model = sections.get("model")
        if model is None:
            return cls(search, relations, {None: others})
        layers = search["layer"].choices if "layer" in search else (model["layer"],)
        known = {layer: {**_of_network(model, layer), **others} for layer in layers}
        return cls(search, relations, known, model["layer"])

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return every value of a trial by name: those of the file, replaced by those of a setting."""
        layer = params.get("layer", self.layer)
        own = f"{layer}."
        drawn = {
            name.removeprefix(own): self.search[name].meaning(value)
            for name, value in params.items()
            if name in self.search
        }
        return {**self.known.get(layer, {}), **params, **drawn}

    def broken(self, params: Mapping[str, Any]) -> Relation | None:
        """Return the first relation that a setting violates, or None."""
        if not self.relations:
            return None
        values = self.values(params)
        return next((relation for relation in self.relations if not relation.holds(values)), None)

    def key(self, params: Mapping[str, Any]) -> str:
        """Return a key of a setting: settings with equal values have the same one, up to rounded steps."""
        return json.dumps(
            {name: self.search[name].nearest(value) for name, value in params.items()}, sort_keys=True
        )

    @cached_property
    def count(self) -> int | None:
        """Number of settings; None for an infinite space, or one of more than `MOST_LISTED` combinations."""
        if any(distribution.count() is None for distribution in self.search.values()):
            return None
        every = size(self.search, frozenset(self.search))
        if every > MOST_LISTED:
            return None
        conditional = any(distribution.when for distribution in self.search.values())
        return sum(1 for _ in self.listed()) if conditional or self.relations else every

    def listed(self) -> Iterator[dict[str, Any]]:
        """Yield every setting of a finite space."""
        for params in combinations(self.search, frozenset(self.search)):
            if self.broken(params) is None:
                yield params

    def draw(self, rng: random.Random, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return an independent draw, which may violate a relation.

        Args:
            rng: Source of random numbers.
            given: Values that are not drawn.
        """
        drawn: dict[str, Any] = {}
        for name, distribution in self.search.items():
            if active(distribution, drawn):
                is_given = given is not None and name in given
                drawn[name] = given[name] if is_given and given is not None else distribution.draw(rng)
        return drawn

    def found(
        self,
        rng: random.Random,
        given: Mapping[str, Any] | None = None,
        accepts: Callable[[Mapping[str, Any]], bool] = lambda params: True,
        most: int = MOST_DRAWS,
    ) -> dict[str, Any] | None:
        """Return a random setting with some given values, or None if the search for one has failed.

        Args:
            rng: Source of random numbers.
            given: Values that are not drawn.
            accepts: Predicate that the setting must satisfy too.
            most: Largest number of draws. A space with few combinations is enumerated after that.
        """
        for _ in range(most):
            params = self.draw(rng, given)
            if self.broken(params) is None and accepts(params):
                return params
        if self.count is None:
            return None
        wanted = given or {}
        own = self.key(wanted)
        left = [
            params
            for params in self.listed()
            if wanted.keys() <= params.keys() and self.key({name: params[name] for name in wanted}) == own
        ]
        left = [params for params in left if accepts(params)]
        return rng.choice(left) if left else None


def read_relations(texts: Sequence[str]) -> tuple[Relation, ...]:
    """Return the relations of the section `require`.

    Raises:
        Violation: A text is not a relation.
    """
    relations = []
    for index, text in enumerate(texts):
        try:
            relations.append(read_relation(text))
        except RelationError as error:
            raise Violation(("require", index), error.must, error.remedy, f"`{text[:80]}`") from None
    return tuple(relations)


def check_relations(feasible: FeasibleSpace) -> None:
    """Check that the relations name hyperparameters, and that some setting satisfies all of them.

    Raises:
        Violation: A relation never applies, or no setting was found that satisfies them.
    """
    values: dict[str, list[Any]] = {}
    for own in feasible.known.values():
        for name, value in own.items():
            values.setdefault(name, []).append(value)
    for name, distribution in feasible.search.items():
        drawn = distribution.labelled or distribution.choices or distribution.ends()
        for known in {name, name.partition(".")[2] if name.partition(".")[0] in LAYERS else name}:
            values.setdefault(known, []).extend(drawn)
    for index, relation in enumerate(feasible.relations):
        path = ("require", index)
        for name in sorted(relation.names):
            if name not in values:
                must = "must name searched hyperparameters, or other values of the file"
                raise Violation(path, must, nearest(name, values), f"`{name}`")
            if not any(map(is_number, values[name])):
                got = f"{name}, which is never a number"
                raise Violation(path, "must compare numbers", "Take it out of the relation.", got)
    if feasible.relations and feasible.found(random.Random(0)) is None:
        raise _without_solution(feasible)


def _without_solution(feasible: FeasibleSpace) -> Violation:
    """Return the violation of a space in which no setting satisfies all relations."""
    rng = random.Random(0)
    draws = [feasible.values(feasible.draw(rng)) for _ in range(_SHOWN_DRAWS)]
    held = [sum(relation.holds(values) for values in draws) for relation in feasible.relations]
    rarest = min(range(len(held)), key=held.__getitem__)
    relation = feasible.relations[rarest]
    example = next((values for values in draws if not relation.holds(values)), draws[0])
    tried = (
        f"none of the {size(feasible.search, frozenset(feasible.search)):,} combinations does"
        if feasible.count is not None
        else f"none of {MOST_DRAWS:,} random draws does"
    )
    among = "`" + relation.text + "`"
    if len(held) > 1:
        among += f" and the {len(held) - 1} other relation{'s' if len(held) > 2 else ''}"
    must = f"some setting must satisfy {among}"
    got = f"{tried}, for example {relation.shown(example)}"
    return Violation(("require", rarest), must, "Widen the search, or loosen the relation.", got)


def check_setting(feasible: FeasibleSpace, given: Mapping[str, Any], path: Path) -> None:
    """Check that some setting with given values satisfies all relations.

    Args:
        feasible: Settings that trials may have.
        given: Values of some or all hyperparameters.
        path: Path of the values in the file.

    Raises:
        Violation: No such setting was found.
    """
    if not feasible.relations or feasible.found(random.Random(0), given) is not None:
        return
    params = feasible.draw(random.Random(0), given)
    relation = feasible.broken(params)
    assert relation is not None, "the draw breaks a relation, as all others do"
    must = f"must satisfy the relation `{relation.text}`"
    raise Violation(
        path, must, "Change the values, or the relation.", relation.shown(feasible.values(params))
    )


def _of_network(model: Mapping[str, Any], layer: str) -> dict[str, Any]:
    """Return the values of a network with a layer by the names of `search`."""
    own = {**model, **model.get("layers", {}).get(layer, {})}
    declared = LAYERS.settings(layer)
    values = {name: own.get(name) for name in ModelSection.model_fields if name not in {"layers", "match"}}
    values |= {name: own.get(name, option.default) for name, option in declared.options.items()}
    for name, spec in declared.ranges.items():
        values |= dict(zip(range_ends(name), own.get(name, spec.default), strict=True))
    return {**values, "layer": layer}
