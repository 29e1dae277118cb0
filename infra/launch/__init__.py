"""Launchers: start a job (a program over files) here, over ssh, by SLURM or Kubernetes, and raise its failure."""
