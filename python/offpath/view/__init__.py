"""A page for people who look at pools: ``offpath view``. ``server`` answers a browser, ``pictures`` asks the agent."""

from .pictures import Pictures, Refused
from .server import ViewServer

__all__ = ["Pictures", "Refused", "ViewServer"]
