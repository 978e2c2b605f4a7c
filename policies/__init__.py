"""The policy shelf: packaged policies, one `.kvp` a policy, each with its tests beside it."""
