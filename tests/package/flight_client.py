"""A client of Arrow Flight: stores a table in a pool of the agent's own user, reads it back, and prints it.

Usage: flight_client.py ADDRESS TOKEN"""

import sys

import pyarrow as pa
import pyarrow.flight as fl

address, token = sys.argv[1:]
options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=60)
client, sent = fl.connect(address), pa.table({"x": [1.0, 2.0]})
writer, _ = client.do_put(fl.FlightDescriptor.for_path("local:/flown", "row"), sent.schema, options)
with writer:
    writer.write_table(sent)
(flight,) = client.list_flights(options=options)
print(client.do_get(flight.endpoints[0].ticket, options).read_all()["x"].to_pylist())
