# SPDX-License-Identifier: Apache-2.0
# usage: bash remove-state.sh STATE_DIR DEVICE_PLUGINS_DIR
# Removes what agent and schedulers have left on a node: everything in the state directory, and the sockets of ended agents
# in the kubelet's. Waits until none of them runs any more, so it takes nothing from anybody.
set -euo pipefail
state=$1 plugins=$2
pause=${REMOVE_STATE_PAUSE:-2}

# The first lock that a process holds (agent/handover.h, agent/supervisor/supervisor.h).
held() {
  local lock
  for lock in "$state"/agent.lock "$state"/agent.next "$state"/agent.leaving "$state"/gpus/*/lock; do
    if [[ -e $lock ]] && ! flock --nonblock --shared "$lock" true; then
      echo "$lock"
      return
    fi
  done
}

said=
while lock=$(held) && [[ -n $lock ]]; do
  [[ $lock == "$said" ]] || echo "$lock is held: the agent or a scheduler of this node still runs; waiting until it has ended"
  said=$lock
  sleep "$pause"
done
find "$state" -xdev -mindepth 1 -depth -delete
for socket in "$plugins"/gpuloom-*.sock; do
  if [[ -S $socket ]] && ! perl -MIO::Socket::UNIX -e 'exit(IO::Socket::UNIX->new(Peer => shift) ? 0 : 1)' "$socket"; then
    rm "$socket"
  fi
done
echo "nothing of gpuloom is left in $state and $plugins"
