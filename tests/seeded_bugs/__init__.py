"""Small, plausible bugs, each with the unit tests that must catch it; ``python -m tests.seeded_bugs`` runs them."""
