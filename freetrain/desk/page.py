"""What the last tick saw, did and why, as it wrote it down; every part may be missing.

Ticks of other versions wrote other pages, so that what is not understood is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freetrain.exchange.layout import StateDir

MOST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Page:
    """The last tick's page.

    Attributes:
        fields: As the tick wrote them.
    """

    fields: dict[str, Any]

    @property
    def at_s(self) -> float | None:
        """When the tick looked, Unix time; None where no tick wrote a page."""
        found = self.fields.get("at_s")
        return float(found) if isinstance(found, int | float) else None

    def records(self, name: str) -> tuple[dict[str, Any], ...]:
        """Return the records in the list *name*; none where there is no such list."""
        found = self.fields.get(name)
        listed = found if isinstance(found, list) else []
        return tuple(one for one in listed if isinstance(one, dict))

    def of_trainer(self, name: str) -> dict[str, Any]:
        """Return what it says of the trainer *name*; nothing where it does not."""
        found = (one for one in self.records("trainers") if one.get("trainer") == name)
        return next(found, {})


def read_page(state: StateDir) -> Page:
    """Return the last tick's page; an empty one where there is none.

    Raises:
        OSError: It is there and cannot be read.
    """
    try:
        with state.page.open("rb") as file:
            fields = json.loads(file.read(MOST_BYTES))
    except (FileNotFoundError, ValueError, RecursionError):
        return Page({})
    return Page(fields if isinstance(fields, dict) else {})
