"""Launchers: start a job (a program over files) on this machine, over ssh, by SLURM or Kubernetes, and await its end.

Input: a ``JobSpec``. Output: nothing, or the Fault named in the job's ``exit.json``. Independent of stages and of what
the program computes.
"""
