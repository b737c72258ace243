"""Runs that survive interruption: runner, store, checkpoints, sweeps, tracking."""
