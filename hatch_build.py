"""The long description of the package: the README, whose links lead to the repository, for it is read elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"(!\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+)")
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s]+)")


class LongDescription(MetadataHookInterface):
    """Gives the package its long description."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field ``readme``.

        :param metadata: of the package, as pyproject.toml has it.
        """
        repository, version = metadata["urls"]["Repository"], metadata["version"]
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        parts = _FENCE.split(readme)
        # Each second part is a fenced block.
        for index, part in enumerate(parts):
            if index % 2 == 0:
                images = _IMAGE.sub(rf"\g<1>{repository}/raw/v{version}/\g<2>", part)
                parts[index] = _LINK.sub(rf"\g<1>{repository}/blob/v{version}/\g<2>", images)
        metadata["readme"] = {"content-type": "text/markdown", "text": "".join(parts)}
