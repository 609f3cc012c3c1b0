"""Reachable linear dynamical systems with one input: eigenvalues are all there is to them.

eigenvalues   how a real system's spectrum is parameterised, and what it starts from
companion     the canonical form, its diagonalisation, and its states
stack         nonlinear RNNs as stacks of corrected linear systems
"""
