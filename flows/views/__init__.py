"""What the terminal shows: progress and result tables of a run, the service, a trace, filter examples.

In: values of the other sub-packages. Out: rich text on a console. Decides nothing and reads no store.
"""
