"""Published test accuracies on the long-sequence tasks, as data, each with its source.

Sources: RotRNN, Tables 1 and 2; LRU, Tables 3 and 6. There a value in brackets is a standard error over three
seeds. The task `image` is grey in one paper and colour in the other: the note says which, and the two cannot
be compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isclose


@dataclass(frozen=True)
class Figure:
    """One published test accuracy.

    Attributes:
        layer: a name of `trainables.layers.LAYERS`.
        task: a name of `trainables.tasks.TASKS`.
        accuracy: share of correct answers.
        error: standard error, or None where the paper prints none.
        source: paper and table.
        note: a condition that comparable results share, or ''.
    """

    layer: str
    task: str
    accuracy: float
    error: float | None
    source: str
    note: str = ""

    @property
    def is_reproduction(self) -> bool:
        """Whether others than its authors measured the layer, whose setting no paper prints."""
        return self.note.startswith("reproduced by")


_ROTRNN = "RotRNN, Table 1"
_ROTRNN_SPEECH = "RotRNN, Table 2"
_LRU = "LRU, Table 3"
_DENSE = "LRU, Table 6"
_AGAIN = "reproduced by RotRNN's authors"
_BY_LRU = "reproduced by LRU's authors"
_COLOUR = "colour"
_GREY = "grey"


def _figures(
    layer: str, source: str, percents: dict[str, float | tuple[float, float]], **notes: str
) -> list[Figure]:
    figures = []
    for task, printed in percents.items():
        value, error = printed if isinstance(printed, tuple) else (printed, None)
        note = "; ".join(part for part in (notes.get("every", ""), notes.get(task, "")) if part)
        figure = Figure(layer, task, value / 100, None if error is None else error / 100, source, note)
        figures.append(figure)
    return figures


FIGURES: tuple[Figure, ...] = (
    *_figures(
        "rotrnn",
        _ROTRNN,
        {"listops": 61.1, "text": 89.6, "retrieval": 89.9, "image": 85.9, "pathfinder": 93.0, "pathx": 89.2},
        image=_GREY,
    ),
    *_figures("rotrnn", _ROTRNN_SPEECH, {"speech_commands": 95.2}),
    *_figures(
        "lru",
        _LRU,
        {
            "listops": (60.2, 0.8),
            "text": (89.4, 0.1),
            "retrieval": (89.9, 0.1),
            "image": (89.0, 0.1),
            "pathfinder": (95.1, 0.1),
            "pathx": (94.2, 0.4),
        },
        image=_COLOUR,
    ),
    *_figures(
        "lru",
        _ROTRNN,
        {"listops": 57.9, "text": 89.4, "retrieval": 89.4, "image": 85.2, "pathfinder": 90.0, "pathx": 92.8},
        every=_AGAIN,
        image=_GREY,
    ),
    *_figures("lru", _ROTRNN_SPEECH, {"speech_commands": 95.2}, every=_AGAIN),
    *_figures(
        "s5",
        _LRU,
        {"listops": 62.2, "text": 89.3, "retrieval": 91.4, "pathfinder": 95.3, "pathx": 98.6},
        every="as S5's paper prints it",
    ),
    *_figures(
        "s5",
        _LRU,
        {
            "listops": (58.5, 0.3),
            "text": (86.2, 0.1),
            "retrieval": (88.9, 0.0),
            "image": (88.8, 0.1),
            "pathfinder": (95.7, 0.1),
            "pathx": (96.0, 0.1),
        },
        every=_BY_LRU,
        image=_COLOUR,
    ),
    *_figures("s5", _ROTRNN_SPEECH, {"speech_commands": 96.8}),
    *_figures(
        "s4d",
        _ROTRNN,
        {"listops": 60.5, "text": 86.2, "retrieval": 89.5, "image": 88.2, "pathfinder": 93.1, "pathx": 92.0},
        image=_GREY,
    ),
    *_figures(
        "s4d",
        _LRU,
        {
            "listops": (60.2, 0.3),
            "text": (86.4, 0.0),
            "retrieval": (89.5, 0.0),
            "image": (91.5, 0.2),
            "pathfinder": (94.2, 0.3),
            "pathx": (97.5, 0.0),
        },
        every=_BY_LRU,
        image=_COLOUR,
    ),
    *_figures("s4d", _ROTRNN_SPEECH, {"speech_commands": 95.8}),
    *_figures(
        "linear_rnn",
        _DENSE,
        {"listops": (50.4, 0.2), "text": (89.1, 0.1), "retrieval": (89.1, 0.1), "image": (72.2, 0.2)},
        image=_COLOUR,
    ),
    *_figures(
        "tanh_rnn",
        _DENSE,
        {"listops": (43.9, 0.1), "text": (87.2, 0.1), "retrieval": (88.9, 0.2), "image": (69.9, 0.3)},
        image=_COLOUR,
    ),
    *_figures(
        "relu_rnn",
        _DENSE,
        {"listops": (37.6, 8.0), "text": (88.0, 0.1), "retrieval": (88.5, 0.1), "image": (69.7, 0.2)},
        image=_COLOUR,
    ),
)


def figures(layer: str, task: str) -> list[Figure]:
    """Return the published accuracies of a layer on a task, in the order of `FIGURES`."""
    return [figure for figure in FIGURES if (figure.layer, figure.task) == (layer, task)]


def figure_of(layer: str, task: str, accuracy: float, source: str) -> Figure | None:
    """Return the published figure of a layer on a task that has an accuracy, or None.

    That of the tables of the source comes first, then that which another paper prints of the authors, and the
    source may quote. Other tables of the same paper may print the number for another setting.

    Args:
        layer: a name of `trainables.layers.LAYERS`.
        task: a name of `trainables.tasks.TASKS`.
        accuracy: as it is printed.
        source: paper and table, or several tables, such as `LRU, Tables 1 and 6`.
    """
    paper, tables = _cited(source)
    cited = [(figure, *_cited(figure.source)) for figure in figures(layer, task)]
    own = [figure for figure, of, numbers in cited if of == paper and numbers <= tables]
    quoted = [figure for figure, of, _ in cited if of != paper and not figure.is_reproduction]
    return next((figure for figure in (*own, *quoted) if isclose(figure.accuracy, accuracy)), None)


def _cited(source: str) -> tuple[str, frozenset[str]]:
    """Return the paper of a source, and the numbers of its tables."""
    paper, _, tables = source.partition(",")
    return paper, frozenset(re.findall(r"\d+", tables))
