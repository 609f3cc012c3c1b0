"""The bodies of requests; a key that is not described here is refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api import user_admin
from orchestrator.config.sections import SLUG
from orchestrator.web.paging import MOST_WHOLE
from orchestrator.web.submitted import Sent

Profile = Annotated[str | None, Field(max_length=64, description="A profile; `full` for none.")]


class Body(BaseModel):
    """A body whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Body):
    """A search-space file."""

    name: Annotated[str, Field(pattern=SLUG, description="Name of the sweep, as the stem of a file.")]
    text: Annotated[str, Field(min_length=1, description="The file, in YAML.")]
    profile: Profile = "auto"
    overrides: Annotated[tuple[str, ...], Field(max_length=100, description="`key=value` each.")] = ()


class Submit(File):
    """A search-space file to run."""

    new: Annotated[bool, Field(description="Whether to run another sweep of the same file.")] = False

    @property
    def sent(self) -> Sent:
        """Return the file that was sent."""
        return Sent(self.name, self.text, self.profile, self.overrides, self.new)


class Validate(File):
    """A search-space file to check."""

    sizes: Annotated[bool, Field(description="Count the sizes of its networks, which takes seconds.")] = False

    @property
    def sent(self) -> Sent:
        """Return the file that was sent."""
        return Sent(self.name, self.text, self.profile, self.overrides)


class Extend(Body):
    """A larger budget."""

    trials: Annotated[int | None, Field(ge=1, le=MOST_WHOLE)] = None
    hours: Annotated[float | None, Field(gt=0)] = None
    gpu_hours: Annotated[float | None, Field(gt=0)] = None


class Priority(Body):
    """What is to change of a sweep: its class, its weight among its owner's sweeps, whether it is paused."""

    priority_class: Literal["urgent", "normal", "idle"] | None = None
    weight: Annotated[float | None, Field(gt=0)] = None
    paused: Annotated[
        bool | None,
        Field(description="True to save every trial and wait until it is resumed; false to resume it."),
    ] = None


class Quota(Body):
    """What is to change of an owner's weight and quotas."""

    weight: Annotated[float | None, Field(gt=0)] = None
    share: Annotated[float | None, Field(ge=0, le=1)] = None
    gpu_hours: Annotated[float | None, Field(ge=0)] = None
    sweeps: Annotated[
        float | None, Field(ge=0, description="Most sweeps that wait or run at once; a whole number.")
    ] = None
    new: Annotated[bool, Field(description="Whether the owner may be one who has no sweep yet.")] = False


class NewUser(Body):
    """A user to add."""

    name: Annotated[str, Field(max_length=64)]
    role: Literal["viewer", "member", "admin"] = "member"
    days: Annotated[
        float | None, Field(gt=0, description="Days that the token is valid; null for one that stays valid.")
    ] = user_admin.DAYS
