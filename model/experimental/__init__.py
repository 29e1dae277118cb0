"""Code for a GPU that has never run on a GPU; a job takes it only where the site says so.

``REPRO_PACKED_ATTENTION=own``: attention over packed sentences by the project's own operator (``packed_attention``).
``REPRO_COMPILE=update``: whole updates as one CUDA graph (``whole_step``). Jobs alone import this package.
"""
