"""The training job in float64, for comparisons of trainings: ``python -m train_in_float64 job.json``."""

from small_training import in_float64

from model.job import job_of_command_line
from model.train import work

if __name__ == "__main__":
    in_float64()
    with job_of_command_line() as job:
        job.finish(work(job))
