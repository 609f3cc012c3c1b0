"""Recurrences over time, with reverse passes written by hand.

    recurrence            x_t = a * x_{t-1} + b_t     diagonal, complex, the same at every step
    varying_recurrence    x_t = a_t * x_{t-1} + b_t   elementwise, real or complex
    linear_recurrence     x_t = A x_{t-1} + b_t       dense
    nonlinear_recurrence  x_t = rho(A x_{t-1} + b_t)  dense, for the RNNs in the comparison
    newton_recurrence     x_t = f(x_{t-1}, b_t)       any cell, in parallel over time

Complex numbers are planes (..., 2, N). All algorithms of a recurrence return the same states. A reverse pass
is the adjoint recurrence run against time, and keeps nothing but the states.
"""

from trainables.layers.recurrence.dense import NONLINEARITIES, linear_recurrence, nonlinear_recurrence
from trainables.layers.recurrence.in_chunks import in_chunks, in_chunks_from
from trainables.layers.recurrence.invariant import ALGORITHMS, recurrence
from trainables.layers.recurrence.newton import Cell, newton_recurrence
from trainables.layers.recurrence.padding import until
from trainables.layers.recurrence.planar import conjugate, planar, polar, times
from trainables.layers.recurrence.varying import Pace, pace, varying_recurrence

__all__ = [
    "ALGORITHMS",
    "NONLINEARITIES",
    "Cell",
    "Pace",
    "conjugate",
    "in_chunks",
    "in_chunks_from",
    "linear_recurrence",
    "newton_recurrence",
    "nonlinear_recurrence",
    "pace",
    "planar",
    "polar",
    "recurrence",
    "times",
    "until",
    "varying_recurrence",
]
