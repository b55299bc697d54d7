"""A page for people who look at pools: ``offpath view``. ``server`` answers a browser; ``pictures``, ``paths``
and ``exchanges`` ask the agent."""

from .pictures import Pictures
from .refused import Refused
from .server import ViewServer

__all__ = ["Pictures", "Refused", "ViewServer"]
