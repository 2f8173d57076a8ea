#!/bin/sh
# A Slurm job in which all nodes measure one shared file system together: sbatch slurm.sh /shared
# The program must be built with --features mpi, against the MPI library that this cluster uses.
#SBATCH --job-name=halfpower
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=00:30:00
#SBATCH --output=halfpower-%j.out
set -eu
target=${1:?name a directory that all nodes mount}
# Rank 0 writes halfpower.db and halfpower.html to the folder in which sbatch was called.
# --mpi=pmix suits Open MPI; see srun --mpi=list. mpirun in place of srun works as well.
srun --mpi=pmix halfpower run "$target" --mpi --rw write --bs 1m --iodepth 8 --size 4g
srun --mpi=pmix halfpower survey "$target" --mpi
