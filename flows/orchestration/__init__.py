"""Everything Prefect: flows, deployments, dispatch to work pools, duplicate runs, single stages, notifications.

In: a request or a stage request. Out: flow runs with named states. The only sub-package of ``flows`` that imports
Prefect; nothing in ``runs``, ``runner``, ``inference`` or ``inspection`` may import it.
"""
