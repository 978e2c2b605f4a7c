"""Policies as they run: compiled from checked files, ordered, resolved against a state, explained and tested.

`checked.open_policy` reads and checks files; `compile.compile` makes a `policy.Policy` of a file set.
"""
