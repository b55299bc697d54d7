#!/bin/sh
# Slurm's Prolog, as root on each node of a job: starts an agent for the job, on the node's DPU where there is one, and
# leaves its address where task_prolog.sh finds it. A prolog that fails takes the node out of service, and Slurm gives
# the job another one; the error is in slurmd's log and in the journal of the unit offpath-job-JOB-NODE.
set -eu
. "$(dirname -- "$0")/job_agent.sh"

install -d -m 755 /run/offpath-jobs "$folder"

# Units of systemd, so that agents have a log and limits, and outlive a restart of slurmd. systemd-run waits until the
# agent says that programs may connect.
start() {
  beside_agent systemd-run --quiet --collect --unit="$unit" --service-type=notify \
    --property=NoNewPrivileges=yes --property=LimitCORE=0 --property=StandardError=journal "$@"
}

if [ -z "$dpu" ]; then
  install -d -m 700 -o "$SLURM_JOB_UID" -g "$(id -g "$SLURM_JOB_UID")" "$folder/agent"
  # The job's own user: its arrays are read where they lie, and no other user comes near its frames.
  start --uid="$SLURM_JOB_UID" --gid="$(id -g "$SLURM_JOB_UID")" --property=StandardOutput=truncate:"$folder/ready" \
    /usr/bin/offpath-agent --ready --memory "$memory" --listen "unix:$folder/agent/agent.sock"
  ready=$(cat "$folder/ready")
else
  # A key for this job alone.
  (umask 077 && head -c 32 /dev/urandom | base64 >"$folder/key")
  beside_agent install -d -m 700 "$dpu_folder"
  beside_agent sh -c "'umask 077 && cat >$dpu_folder/key'" <"$folder/key"
  chown "$SLURM_JOB_UID" "$folder/key"
  start --property=DynamicUser=yes --property=StandardOutput=truncate:"$dpu_folder/ready" \
    --property=LoadCredential=key:"$dpu_folder/key" \
    --property=LoadCredential=certificate:"$dpu_certificate" \
    --property=LoadCredential=certificate_key:"$dpu_certificate_key" \
    /usr/bin/offpath-agent --ready --memory "$memory" --listen "tls:$dpu:0" \
    --key-file "/run/credentials/$unit.service/key" --tls-cert "/run/credentials/$unit.service/certificate" \
    --tls-key "/run/credentials/$unit.service/certificate_key"
  ready=$(beside_agent cat "$dpu_folder/ready")
fi
printf '%s\n' "$ready" | sed -n 's/.*"address": *"\([^"]*\)".*/\1/p' >"$folder/address"
chmod 644 "$folder/address"
[ -s "$folder/address" ]
