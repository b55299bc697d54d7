"""An exchange of agents for tests and pictures of `offpath view`."""

LOAD_EXCHANGE = """
[[exchange]]
name = "load"
interval = "100ms"
deadline = "80ms"
fields = ["power:f64:watts", "jobs:u64"]
"""
