"""What makes a trigger of a class whose fields are its arguments."""

from __future__ import annotations

from typing import Any

import attrs


class FieldsTrigger:
    """Serialises a trigger by its fields; to be inherited beside a base class of Airflow's, with ``attrs.define``."""

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer makes this trigger again."""
        kind: Any = type(self)
        names = [field.name for field in attrs.fields(kind) if field.init]
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in names}
