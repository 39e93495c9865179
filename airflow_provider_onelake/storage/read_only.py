"""A store behind which nothing can be written, such as one that OneLake only reads through a shortcut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_onelake.exceptions import ShortcutError

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store


class ReadOnly:
    """A store behind which nothing can be written: it passes on whatever does not write.

    :param inner: the store.
    :param why: what to say to who writes.
    """

    def __init__(self, inner: Store, why: str) -> None:
        self._inner, self._why = inner, why

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _refuse(self, *_: object) -> NoReturn:
        raise ShortcutError(self._why)

    create = put = delete = _refuse
