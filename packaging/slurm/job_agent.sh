# Sourced by the others: the names of one job's files and unit on one node, and the place of its agent.
# shellcheck shell=sh
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
settings=$here/offpath-slurm.conf
[ ! -e /etc/offpath/offpath-slurm.conf ] || settings=/etc/offpath/offpath-slurm.conf
. "$settings"

job=${SLURM_JOB_ID:?}
node=${SLURMD_NODENAME:-$(hostname -s)}
unit=offpath-job-$job-$node
folder=/run/offpath-jobs/$job.$node # root's: whoever may write in it could turn what root writes there elsewhere
dpu_folder=$folder.dpu             # the same on the DPU

dpu=
[ ! -e "$dpus" ] || dpu=$(awk -v node="$node" '$1 == node { print $2; exit }' "$dpus")

# The place of the agent. Words for a DPU's shell must not need quoting: names and paths of this file only.
beside_agent() {
  if [ -n "$dpu" ]; then $dpu_shell "$dpu" "$@"; else "$@"; fi
}
