# SPDX-License-Identifier: Apache-2.0
# usage: bash drain-node.sh STATE_DIR
# Before `helm uninstall`: nobody new gets this node's GPUs, and whoever is there is waited for. The last line that it has
# printed is what it waits for.
set -euo pipefail
state=$1
pause=${DRAIN_NODE_PAUSE:-1}

shopt -s nullglob
gpus=("$state"/gpus/*/)
if ((${#gpus[@]} == 0)); then
  echo "no GPU of gpuloom is here"
  exit
fi
said=
until answer=$(gpuloom drain --state-dir "$state" --reason "helm uninstall" --wait --timeout 5s 2>&1); do
  holders=$(awk '/^NAMESPACE / { table = 1; next } /^gpuloom: / { table = 0 }
    table { print $1 == "-" ? "a pod that has not started" : $1 "/" $2 }' <<<"$answer" | sort -u)
  if [[ $holders ]]; then
    waits="waits for pods that hold slots: ${holders//$'\n'/, }"
    # Then nobody notices that they have ended.
    if no_agent=$(grep -m 1 "^gpuloom: no agent is in charge" <<<"$answer"); then
      waits+="; ${no_agent#gpuloom: }"
    fi
  else
    waits=${answer##*$'\n'}
  fi
  [[ $waits == "$said" ]] || echo "$waits"
  said=$waits
  sleep "$pause"
done
echo "nobody holds slots"
