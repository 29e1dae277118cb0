"""GPU code that is faster than torch's but was tested on one card only; a job uses it if the site selects it.

``REPRO_PACKED_ATTENTION=own``: attention over packed sentences by the project's own operator (``packed_attention``).
``REPRO_COMPILE=update``: whole updates as one CUDA graph (``whole_step``). Only jobs import this package.
"""
