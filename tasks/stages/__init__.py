"""The sixteen stages of the pipeline, one file each.

Each writes the files of one artifact from input artifacts and a frozen configuration, and returns its facts. Pure
functions come first, then the body under ``@stage``. A stage imports no other stage, no torch and no Prefect. Of the
engine it imports only ``tasks.engine.stage`` (``register`` also ``stage_code``).
"""
