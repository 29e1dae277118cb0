"""The eleven stages of the pipeline, one file each.

Each turns input artifacts and a frozen configuration into the files of one artifact, and returns its facts. A stage
imports no other stage's body, no engine but ``tasks.engine.stage``, no torch and no Prefect.
"""
