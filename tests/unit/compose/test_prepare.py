"""What must be there before Airflow starts in containers: its password; the rest needs stores."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from include.compose.prepare import write_password


def test_the_password_is_for_its_owner_only_and_the_newest_counts(tmp_path: Path) -> None:
    file = tmp_path / "passwords.json"
    for password in ("a longer one", "mine"):
        write_password(file, password)
    assert json.loads(file.read_text()) == {"admin": "mine"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
