"""The search-space file of each arm, merged from the parts of an experiment file.

The parts are, in this order: the file that `space` names, `common`, the parts in `use`, the sections of the
arm, and then `common`, the parts and the arm of the chosen profile. Later parts override earlier ones, as
profiles of search-space files do.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.document import UNKNOWN_KEY, LocatedValue, Violation, nearest
from orchestrator.config.document import Path as Keys
from orchestrator.config.resolve import merged, profile_of, with_profile
from orchestrator.config.sections import SpaceFile
from orchestrator.config.yaml_reader import read_document
from orchestrator.experiment.file_format import (
    OF_A_SPACE,
    ArmSection,
    ExperimentFile,
    PartSection,
    ProfileSection,
)


@dataclass(frozen=True)
class ExperimentSource:
    """A parsed experiment file.

    Attributes:
        path: Path of the file.
        root: Tree of located values.
        file: Validated sections.
        profile: Name of the chosen profile, or None.
        overrides: Overrides of the resources of all arms, as `key=value`.
    """

    path: Path
    root: LocatedValue
    file: ExperimentFile
    profile: str | None
    overrides: tuple[str, ...] = ()

    @property
    def seeds(self) -> int:
        """Number of seeds of every arm."""
        chosen = self.file.profiles[self.profile].seeds if self.profile else None
        return chosen or self.file.seeds

    def places(self, arm: str) -> Iterator[tuple[Keys, PartSection]]:
        """Yield the path and the section of each part of an arm, in the order in which they apply.

        Raises:
            Violation: The arm uses a part that the file does not have.
        """
        own = self.file.arms[arm]
        for index, part in enumerate(own.use):
            if part not in self.file.parts:
                must = "must name parts of the file"
                raise Violation(("arms", arm, "use", index), must, nearest(part, self.file.parts))
        yield ("common",), self.file.common
        yield from ((("parts", part), self.file.parts[part]) for part in own.use)
        yield ("arms", arm), own
        if self.profile is not None:
            start, profile = ("profiles", self.profile), self.file.profiles[self.profile]
            yield (*start, "common"), profile.common
            for part in own.use:
                if part in profile.parts:
                    yield (*start, "parts", part), profile.parts[part]
            changes = profile.arms.get(arm)
            if changes is not None:
                yield (*start, "arms", arm), changes

    def arms(self) -> Iterator[tuple[str, ArmSection]]:
        """Yield the arms that the profile keeps, with its changes to their figures.

        Raises:
            Violation: The profile changes an arm or a part that the file does not have.
        """
        profile = self.file.profiles[self.profile] if self.profile else ProfileSection()
        for name, own in self.file.arms.items():
            changes = profile.arms.get(name, own)
            if changes is not None and (name in profile.only or not profile.only):
                stated = {key: getattr(changes, key) or getattr(own, key) for key in ("paper", "departure")}
                yield name, own.model_copy(update=stated)


def check_names(file: ExperimentFile) -> None:
    """Check that parts have known keys, and that profiles and claims name existing arms and parts.

    Raises:
        Violation: A name is unknown.
    """
    for path, part in _parts(file):
        _check_keys(path, part)
    for name, profile in file.profiles.items():
        for kind, given, known in (
            ("arms", profile.arms.keys(), file.arms.keys()),
            ("parts", profile.parts.keys(), file.parts.keys()),
            ("only", set(profile.only), file.arms.keys()),
        ):
            for key in given - known:
                what = "parts" if kind == "parts" else "arms"
                path = ("profiles", name, kind, *(() if kind == "only" else (key,)))
                raise Violation(path, f"must name one of the {what}", nearest(key, known), f"`{key}`")
    if file.controls is not None:
        if file.compare.solved is None:
            must = "requires `compare.solved`"
            raise Violation(("controls",), must, "For example compare: {solved: {at: 0.9}}.", "")
        for key in ("positive", "negative"):
            for index, arm in enumerate(getattr(file.controls, key)):
                if arm not in file.arms:
                    path = ("controls", key, index)
                    raise Violation(path, "must name an arm", nearest(arm, file.arms), f"`{arm}`")
    _check_families(file)
    for index, claim in enumerate(file.claims):
        for key in ("better", "than"):
            arm = getattr(claim, key)
            if arm not in file.arms:
                path = ("claims", index, key)
                raise Violation(path, "must name an arm", nearest(arm, file.arms), f"`{arm}`")


def _check_families(file: ExperimentFile) -> None:
    """Check that families name arms, and each arm once."""
    owners: dict[str, str] = {}
    for family, patterns in file.families.items():
        for index, pattern in enumerate(patterns):
            path = ("families", family, index)
            found = [arm for arm in file.arms if fnmatch.fnmatchcase(arm, pattern)]
            if not found:
                raise Violation(path, "must name an arm", nearest(pattern, file.arms), f"`{pattern}`")
            for arm in found:
                if owners.setdefault(arm, family) != family:
                    must, remedy = "must not name an arm of another family", "Give each arm one family."
                    raise Violation(path, must, remedy, f"`{arm}`, which is in {owners[arm]}")


def families_of(file: ExperimentFile, arms: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the arms of each declared family that a profile keeps."""
    return {
        family: tuple(arm for arm in arms if any(fnmatch.fnmatchcase(arm, pattern) for pattern in patterns))
        for family, patterns in file.families.items()
    }


def _parts(file: ExperimentFile) -> Iterator[tuple[Keys, PartSection]]:
    yield ("common",), file.common
    yield from ((("parts", name), part) for name, part in file.parts.items())
    yield from ((("arms", name), arm) for name, arm in file.arms.items())
    for name, profile in file.profiles.items():
        yield ("profiles", name, "common"), profile.common
        yield from ((("profiles", name, "parts", key), part) for key, part in profile.parts.items())
        for key, arm in profile.arms.items():
            if arm is not None:
                yield ("profiles", name, "arms", key), arm
                if arm.use:
                    must = "cannot be changed by a profile"
                    raise Violation(
                        ("profiles", name, "arms", key, "use"),
                        must,
                        "Change the sections of the arm instead.",
                    )


def _check_keys(path: Keys, part: PartSection) -> None:
    for key in part.extras:
        if key not in OF_A_SPACE:
            known = OF_A_SPACE | type(part).model_fields.keys()
            remedy = "Write `seeds`." if key in SpaceFile.model_fields else nearest(key, known)
            raise Violation((*path, key), UNKNOWN_KEY, remedy, "")


def space_of(source: ExperimentSource, arm: str) -> LocatedValue:
    """Return the search-space file of an arm, as a tree of located values.

    Raises:
        BadInput: The file that `space` names cannot be read, or lacks the profile.
        Violation: The arm uses a part that the file does not have.
    """
    parts = list(source.places(arm))
    tree = _base(source, parts)
    for keys, part in parts:
        node = source.root.at(keys)
        if part.extras:
            given = {key: value for key, value in node.entries.items() if key in part.extras}
            tree = merged(tree, LocatedValue(given, node.where))
    # A search of a single trial provides one seed. Otherwise only confirmations count, because the best trial
    # was selected.
    is_alone = tree.at(("budget", "trials")).value == 1
    confirm = LocatedValue({"seeds": LocatedValue(source.seeds - is_alone, "")}, "")
    return LocatedValue({**tree.entries, "confirm": confirm}, source.root.at(("arms", arm)).where)


def _base(source: ExperimentSource, parts: list[tuple[Keys, PartSection]]) -> LocatedValue:
    spaces = [part.space for _, part in parts if part.space is not None]
    if not spaces:
        return LocatedValue({}, "")
    root, _ = read_document(source.path.parent / spaces[-1])
    profiles = [part.space_profile for _, part in parts if part.space_profile is not None]
    return with_profile(root, profile_of(root, profiles[-1] if profiles else None, gpus=0))
