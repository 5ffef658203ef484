#!/usr/bin/env bash
# One training over all GPUs of a Slurm job: one rank a GPU, started by srun.
#
#     sbatch --nodes 2 slurm.sh --data /shared/graph --model sage --out /shared/run
#
# Arguments are flags of `girih train`, --out among them. DEVICE=cpu trains without GPUs, then --ntasks-per-node says how many ranks.
#SBATCH --job-name=girih
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
set -euo pipefail

# Ranks know each other by a secret that lies where all hosts read it, and only its owner.
secrets=${SECRET_FOLDER:-$HOME/.girih}
export GIRIH_SECRET_FILE=$secrets/$SLURM_JOB_ID
mkdir -p "$secrets"
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$GIRIH_SECRET_FILE")
trap 'rm -f "$GIRIH_SECRET_FILE"' EXIT

# Rank 0 is on the first host; sed reads the others, too, so that no pipe breaks. The port follows from the job, so that
# jobs of one host rarely meet.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export GIRIH_RENDEZVOUS=$first:$((20000 + SLURM_JOB_ID % 10000))

# A job that was stopped goes on when it is submitted again. Slurm sends SIGTERM two minutes before the end of the time.
srun --kill-on-bad-exit=1 girih train --device "${DEVICE:-cuda}" --resume "$@"
