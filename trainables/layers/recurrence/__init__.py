"""Linear recurrences over time, in one place.

    recurrence            x_t = a * x_{t-1} + b_t     diagonal, complex, the same at every step
    varying_recurrence    x_t = a_t * x_{t-1} + b_t   diagonal, complex
    linear_recurrence     x_t = A x_{t-1} + b_t       dense
    nonlinear_recurrence  x_t = rho(A x_{t-1} + b_t)  dense, for the layers that are compared with

Complex numbers are planes (..., 2, N). All algorithms of a recurrence give the same states;
every reverse pass is written by hand, the adjoint recurrence run against time, and keeps the states alone.
"""

from trainables.layers.recurrence.dense import NONLINEARITIES, linear_recurrence, nonlinear_recurrence
from trainables.layers.recurrence.invariant import ALGORITHMS, recurrence
from trainables.layers.recurrence.planar import conjugate, planar, polar, times
from trainables.layers.recurrence.varying import varying_recurrence

__all__ = [
    "ALGORITHMS",
    "NONLINEARITIES",
    "conjugate",
    "linear_recurrence",
    "nonlinear_recurrence",
    "planar",
    "polar",
    "recurrence",
    "times",
    "varying_recurrence",
]
