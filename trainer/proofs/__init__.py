"""The learning proofs: tasks whose right answer is known, trained to their end and judged."""

from onegraph.trainer.proofs.catalogue import PROOFS, UnknownProofError, chosen
from onegraph.trainer.proofs.outcome import Outcome
from onegraph.trainer.proofs.parallel import run_tasks
from onegraph.trainer.proofs.proof import Needed, Proof, Target
from onegraph.trainer.proofs.run import Task, run_task

__all__ = [
    "PROOFS",
    "Needed",
    "Outcome",
    "Proof",
    "Target",
    "Task",
    "UnknownProofError",
    "chosen",
    "run_task",
    "run_tasks",
]
