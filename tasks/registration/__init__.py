"""Model registration: what a version says of itself, and which alias it gets.

Input: manifests and score facts. Output: tags, a description, and a version in MLflow's registry. How MLflow stores a
model is ``infra.tracking``. Depends on no stage.
"""
