"""Everything Prefect: flows, deployments, duplicate runs.

Input: a request. Output: flow runs with named states. The only sub-package of ``flows`` that imports
Prefect; nothing in ``runs``, ``runner``, ``inference`` or ``inspection`` may import it.
"""
