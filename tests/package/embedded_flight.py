"""An agent of the program's own that serves Arrow Flight, and flight_client.py, the one argument, beside it."""

import subprocess
import sys
import tempfile

import offpath

token = "a-token-of-the-tests"
with tempfile.NamedTemporaryFile("w") as file:  # mode 0600
    file.write(token)
    file.flush()
    settings = {"flight.listen": "tcp:127.0.0.1:0", "flight.token_file": file.name}
    with offpath.Agent.start(settings=settings) as agent:
        subprocess.run([sys.executable, "-I", sys.argv[1], str(agent.flight), token], check=True)
