"""Shows in the terminal: progress and result tables of a run, the service, a trace, filter examples."""
