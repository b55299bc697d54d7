#!/bin/sh
# Slurm's Epilog, as root on each node of a job: stops the job's agent and removes what prolog.sh made. Frames that were
# not fetched or written to a file by then are lost. A missing agent is not an error: the prolog may have failed.
set -u
. "$(dirname -- "$0")/job_agent.sh"

beside_agent systemctl --quiet stop "$unit.service" 2>/dev/null
[ -z "$dpu" ] || beside_agent rm -rf "$dpu_folder"
rm -rf "$folder"
