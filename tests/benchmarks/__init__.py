"""Measurements, run by ``make bench``: ratios taken in one run, never assertions on time."""
