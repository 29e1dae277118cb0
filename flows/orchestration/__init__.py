"""Everything Prefect: flows, deployments, dispatch to work pools, duplicate runs, single stages.

Input: a request or a stage request. Output: flow runs with named states. The only sub-package of ``flows`` that imports
Prefect; nothing in ``runs``, ``runner``, ``inference`` or ``inspection`` may import it.
"""
