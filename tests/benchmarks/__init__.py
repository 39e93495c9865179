"""Measurements, run by ``make bench``: ratios taken in one run, never assertions on time.

``__main__`` runs the parts: ``races``, ``loads``, ``tasks``, ``merges``, ``commits`` and ``growth``. Each yields samples, which
are what ``samples`` says. ``report`` puts them into docs/project/performance.md.
"""
