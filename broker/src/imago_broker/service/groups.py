"""Settings of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.model.groups import GroupConfig


class GroupService:
    """All groups' settings; kept in the log's metadata."""

    def get(self, name: str) -> GroupConfig | None:
        """Return a group's settings."""
        raise NotImplementedError

    def get_or_create(self, name: str) -> GroupConfig | None:
        """Return the settings, made with defaults when allowed; None: unknown, not to be made."""
        raise NotImplementedError

    def update(self, config: GroupConfig) -> None:
        """Make or change a group."""
        raise NotImplementedError

    def delete(self, name: str) -> bool:
        """Delete a group's settings; False when there are none."""
        raise NotImplementedError

    def all(self) -> list[GroupConfig]:
        """Return all settings, by name."""
        raise NotImplementedError
