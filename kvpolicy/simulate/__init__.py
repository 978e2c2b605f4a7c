"""Traces replayed under policies, baselines and bounds, and what is told of it."""
