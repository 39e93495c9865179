"""The command ``local-onelake``, as ``python -m local_onelake``."""

from local_onelake.cli import app

if __name__ == "__main__":
    app()
