"""What a load tells of itself: lineage and metrics."""
