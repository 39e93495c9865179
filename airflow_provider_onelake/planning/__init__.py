"""Planning: a source's partitions, balanced over writers."""
