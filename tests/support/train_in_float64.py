"""The training job in float64, for comparisons of trainings: ``python -m train_in_float64 job.json``."""

from small_training import in_float64

from model.job import run_job
from model.train import work

if __name__ == "__main__":
    in_float64()
    run_job(work)
