"""One rank's events as an engine writes them, beside those of the traced step."""

from __future__ import annotations

from advisor.memory.timeline import Event


class Rank:
    """Collects the events of one rank. Keys are negative, so that they never meet the traced step's."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._key = -1

    def phase(self, name: str, number: int = 0) -> None:
        """A phase begins ("load", "step" …), or the cache is given back ("empty_cache")."""
        self.events.append(Event("phase", number, 0, name))

    def alloc(self, size: int, part: str, stream: int = 0) -> Event | None:
        """``size`` bytes on a stream's pool; None for nothing."""
        if size <= 0:
            return None
        self._key -= 1
        event = Event("alloc", self._key, size, part, stream)
        self.events.append(event)
        return event

    def free(self, event: Event | None) -> None:
        """Give back what :meth:`alloc` returned."""
        if event is not None:
            self.events.append(event._replace(kind="free"))

    def briefly(self, size: int, part: str, stream: int = 0) -> None:
        """Bytes that are alive for a moment."""
        self.free(self.alloc(size, part, stream))
