"""Workloads made from published figures: seeded, streamed, labelled as made. `catalogue` names them; see
docs/workloads.md."""
