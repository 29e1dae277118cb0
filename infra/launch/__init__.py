"""Launchers: start a job (a program over files) here, on SLURM or on Kubernetes, and watch it to its end.

In: a ``Job``. Out: nothing, or the Fault that the job's ``exit.json`` names. Knows neither stages nor what the
program computes.
"""
