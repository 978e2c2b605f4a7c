"""From `.kvp` texts to a checked file set: parsing, the way past faults, loading, names and types."""
