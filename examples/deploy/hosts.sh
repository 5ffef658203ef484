#!/usr/bin/env bash
# One training over several hosts without a scheduler. Run it on each of them, as torchrun is run:
#
#     NODES=2 NODE=0 FIRST=node0:29400 SECRET_FILE=secret ./hosts.sh --data /shared/graph --out /shared/run
#     NODES=2 NODE=1 FIRST=node0:29400 SECRET_FILE=secret ./hosts.sh --data /shared/graph --out /shared/run
#
# Arguments are flags of `girih train`. PROCESSES is the number of ranks of this host, one a GPU. SECRET_FILE is a copy of
# one file: openssl rand -hex 32 >secret; chmod 600 secret. With LAUNCHER=torchrun, torchrun starts the ranks.
set -euo pipefail

nodes=${NODES:-1} node=${NODE:-0} launcher=${LAUNCHER:-girih}
first=${FIRST:-127.0.0.1:29400}
processes=${PROCESSES:-$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)}
if [ "$processes" -lt 1 ]; then
    echo "hosts.sh: no GPU was found: set PROCESSES to the number of ranks of this host" >&2
    exit 2
fi
if [ -n "${SECRET_FILE:-}" ]; then
    export GIRIH_SECRET_FILE=$SECRET_FILE
fi

case $launcher in
girih)
    place=(--nproc "$processes" --nodes "$nodes" --node "$node")
    # On one host girih finds a port.
    if [ "$nodes" -gt 1 ]; then
        place+=(--rendezvous "$first")
    fi
    exec girih launch "${place[@]}" -- train "$@"
    ;;
torchrun)
    # girih takes rank, size and address from torchrun's variables, and no Python runs.
    exec torchrun --no-python --nproc-per-node "$processes" --nnodes "$nodes" --node-rank "$node" \
        --master-addr "${first%:*}" --master-port "${first##*:}" girih train "$@"
    ;;
*)
    echo "hosts.sh: LAUNCHER is $launcher: give girih or torchrun" >&2
    exit 2
    ;;
esac
