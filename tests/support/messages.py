"""What a person sees of a message who does not scroll: the first 100 characters of its line."""

from __future__ import annotations

import re

IN_SIGHT = 100
VERBS = re.compile(
    r"\b(is|are|was|were|be|been|has|have|had|can|cannot|could|did|does|do|would|must|may|let|"
    r"add(s|ed)|appended|answer(s|ed)?|asks?|belongs?|breaks?|came|change[sd]?|chooses?|compares?|computed?s?|counts?|"
    r"disagrees?|ended|expires?|fail(s|ed)?|found|gives?|gets?|goes|went|grew|holds?|keeps?|knows?|lacks?|leads?|leaves?|left|"
    r"lies|lists?|looked|looks|lost|makes?|means?|met|names?|needs?|produced?s?|put|ran|reads?|refuse[sd]?|returns?|"
    r"returned|satisfies|says?|said|sets?|shows?|sign(s|ed)|staged|stands?|stays?|takes?|took|tells?|use[sd]?|violates?|"
    r"wait(s|ed)?|wants?|works?|give|begins?|ends?|pass(es)?|install|choose)\b"
)
# A path or an address, unless somebody wrote it so: then it stands in quotes.
_ADDRESS = re.compile(r"\w+://\S|(?<![\w'/.])/\w+/\w+")


def has_its_point_in_sight(said: str) -> bool:
    """Say whether the beginning of a message says who and what: it has a verb, and no address before it."""
    _, _, seen = said[:IN_SIGHT].partition(": ")
    return VERBS.search(_ADDRESS.split(seen, maxsplit=1)[0]) is not None
