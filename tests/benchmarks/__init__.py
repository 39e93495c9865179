"""Measurements, run by ``make bench``: ratios taken in one run, never assertions on time.

``__main__`` runs the parts, which are ``loads``, ``commits``, ``growth`` and ``overhead``; each returns samples of
``results``. ``report`` renders docs/performance.md of them.
"""
