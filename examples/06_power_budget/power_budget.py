"""A power budget over four nodes: every node says what it would draw, whoever leads gives each a cap, and nodes keep to
it. The caps are grants: they end by themselves, so a leader that dies leaves nodes at their idle power, never above the
budget.

The nodes' load is simulated; the agents are real, one beside each node.
"""

import time

import offpath

NODES = ["node0", "node1", "node2", "node3"]
BUDGET, IDLE = 1000, 50  # watts, of all; of a node without a cap
ROUNDS = 60
CONFIG = f"""
[[exchange]]
name = "power"
topology = "neighbourhoods(2)"
members = {NODES}
interval = "50ms"
deadline = "40ms"
fields = ["wanted:f64:watts", "drawn:f64:watts"]
reductions = ["sum(drawn)"]
grant_total = {BUDGET - IDLE * len(NODES)}
grant_ttl = "300ms"
grant_lease = "500ms"
"""


def wanted(node: int, now_s: float) -> float:
    """Two nodes compute in turns, the others idle along."""
    busy = int(now_s / 1.5) % 2 == node % 2
    return 600.0 if busy and node < 2 else 120.0


def decide(view: offpath.View) -> dict[str, int]:
    """Everybody what it wants, if there is as much; otherwise in proportion."""
    wants = {name: max(entry["wanted"] - IDLE, 0) for name, entry in view.entries.items() if entry.has_value}
    room = BUDGET - IDLE * len(NODES)
    scale = min(1.0, room / max(sum(wants.values()), 1.0))
    return {name: int(watts * scale) for name, watts in wants.items()}


def main() -> None:
    agents, sessions = [], []
    for name in NODES:
        join = {"group.join": agents[0].address} if agents else {}
        agents.append(offpath.Agent.start(config=CONFIG, settings={"agent.name": name, **join}))
        sessions.append(offpath.connect(agents[-1].address))
    nodes = [session.exchange("power", publish=True) for session in sessions]
    began = time.monotonic()
    highest, most = 0.0, [0.0] * len(NODES)
    for step in range(ROUNDS):
        now = time.monotonic() - began
        drawn = []
        for i, node in enumerate(nodes):
            cap = IDLE + node.granted[0]
            drawn.append(min(wanted(i, now), cap))
            node.publish(wanted=wanted(i, now), drawn=drawn[-1])
        for node in nodes:  # whoever leads decides; all may say what they would do, only its word counts
            view = node.view(timeout=5)
            node.grant(decide(view))
        highest = max(highest, sum(drawn))
        most = [max(pair) for pair in zip(most, drawn, strict=True)]
        if step % 10 == 0:
            print(f"{now:4.1f} s: {' '.join(f'{watts:4.0f}' for watts in drawn)}  together {sum(drawn):5.0f} W "
                  f"of {BUDGET}, {view.leader} leads")  # fmt: skip
    assert highest <= BUDGET, f"{highest} W were drawn"
    assert min(most[:2]) > 500, f"a busy node was never given its power: {most}"
    agents[0].kill()  # the leader: its caps end, and the next one goes on
    time.sleep(0.4)
    left = nodes[1:]
    assert all(node.granted[0] == 0 for node in left)
    while sum(node.granted[0] for node in left) == 0:
        for i, node in enumerate(left):
            node.publish(wanted=600.0 if i == 0 else 120.0, drawn=float(IDLE))
            node.grant(decide(node.view(timeout=5)))
    print(f"highest {highest:.0f} W; after {NODES[0]} died, {left[0].view(timeout=5).leader} "
          f"gives {left[0].granted[0]} W")  # fmt: skip
    for session in sessions[1:]:
        session.close()
    for agent in agents:
        agent.stop()


if __name__ == "__main__":
    main()
