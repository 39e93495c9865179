"""Writers, committers, reconciliations and foreign writers, run through every kind of bad luck, from a seed."""
