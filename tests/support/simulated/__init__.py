"""Runs the engine and the local store on a simulated machine: disk, locks, processes and faults follow from one seed.

``disk`` keeps files and what of them survives a power loss, ``machine`` runs processes and gives the turn from one to
another, ``system_calls`` leads Python's file functions to them. ``pipeline`` is what the processes run,
``schedules`` makes and checks schedules of faults, ``planted_bugs`` has bugs to be found.
"""
