"""Offpath: hands a program's arrays to an agent beside it, which pulls them and keeps them as Arrow.

>>> with offpath.Agent.start() as agent:
...     session = offpath.connect(agent.address)
...     out = session.stream("particles", schema, rows_max=1_000_000)
...     ticket = out.send({"id": ids, "x": x}, key=("step0", "rank0"))  # returns at once, copies nothing
...     ticket.wait_pulled()  # the arrays may change again
...     table = session.pool("local:/particles").get("step0", "rank0", timeout=1)
"""

from . import errors
from ._native import version as _version
from .agent import Agent, find_agent
from .errors import *  # noqa: F403
from .exchange import Exchange, Figure, View
from .frame import Frame
from .gauges import Gauge, Gauges
from .pool import Entry, Pool
from .session import Announcement, Info, Member, Segment, Session, connect
from .stream import Stream, Ticket
from .tasks import Input, Output, Task, Tasks, team_of
from .tracks import Tracks

__version__ = _version()

__all__ = [
    "Agent", "Announcement", "Entry", "Exchange", "Figure", "Frame", "Gauge", "Gauges", "Info", "Input", "Member",
    "Output", "Pool", "Segment", "Session", "Stream", "Task", "Tasks", "Ticket", "Tracks", "View", "connect", "errors",
    "find_agent", "team_of",
    *(name for name in errors.__all__ if name != "error_of"),
]  # fmt: skip
