"""Where two policies decide differently: regions of spans and states, worked out from the rules and not by sampling.

Takes two compiled policies, gives a `Difference`; `kvp diff` shows it.
"""
