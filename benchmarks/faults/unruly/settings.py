"""What the unruly layer accepts."""

from trainables.settings import LayerSettings, Option

MISCHIEF = ("none", "nothing", "raise", "nan", "hang", "memory", "exit")
UNRULY = LayerSettings(
    summary="Unruly: an LDS that fails as it is told.",
    options={"mischief": Option("none", "What goes wrong.", choices=MISCHIEF)},
)
