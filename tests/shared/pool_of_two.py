"""A pool whose parts are at two members, for engines that read each part beside its member."""

from __future__ import annotations

import numpy as np
import offpath
import pyarrow as pa
from agent_group import PATIENCE_S

NAMES = ["a", "b"]
STEPS, ROWS = 8, 20_000


def filled(session: offpath.Session) -> pa.Table:
    """Every other step is at each member. Some values are NaN, some are null."""
    tables = []
    for step in range(STEPS):
        ids = np.arange(ROWS) + step * ROWS
        x = pa.array(np.where(ids % 5 == 0, np.nan, np.cos(ids)), mask=ids % 3 == 0, from_pandas=False)
        tables.append(pa.table({"id": ids, "x": x, "y": np.sin(ids)}))
        session.pool("rank:/p").put(tables[-1], f"step{step}", timeout=PATIENCE_S)
    return pa.concat_tables(tables)
