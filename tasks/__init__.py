"""The rooms: one file per stage, and what makes a function a stage."""
