"""Code for a GPU that is faster than torch's and was run on one card only; a job takes it where the site says so.

``REPRO_PACKED_ATTENTION=own``: attention over packed sentences by the project's own operator (``packed_attention``).
``REPRO_COMPILE=update``: whole updates as one CUDA graph (``whole_step``). Jobs alone import this package.
"""
