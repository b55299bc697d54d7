#!/bin/sh
# Slurm's TaskProlog, as the user before each task: its output becomes the task's environment. A program that calls
# ofp_connect(NULL, …) or offpath.connect() reaches the agent of its own node.
. "$(dirname -- "$0")/job_agent.sh"

[ -r "$folder/address" ] || { echo "print offpath: no agent for this job on $node"; exit 0; }
echo "export OFFPATH_AGENT=$(cat "$folder/address")"
[ ! -r "$folder/key" ] || echo "export OFFPATH_KEY_FILE=$folder/key"
[ ! -r "$folder/key" ] || echo "export OFFPATH_TLS_CA_FILE=$authority"
