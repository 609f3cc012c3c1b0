"""Sharing of a cluster: claims of sweeps, and how fast sweeps finish their trials."""
