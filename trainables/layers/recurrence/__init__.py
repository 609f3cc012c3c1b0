"""Linear recurrences x_t = decay * x_{t-1} + inputs_t over time, diagonal and complex.

Every layer of the papers that is linear in time stands on `recurrence`. Its forms (sequential, chunked,
associative) give the same states and may be interchanged. The reverse pass is the conjugate recurrence run
backwards, written by hand: it keeps the states and nothing else.
"""

from trainables.layers.recurrence.invariant import FORMS, recurrence
from trainables.layers.recurrence.planar import as_complex, conjugate, factors, planar, polar, swap, times

__all__ = ["FORMS", "as_complex", "conjugate", "factors", "planar", "polar", "recurrence", "swap", "times"]
