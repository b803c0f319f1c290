"""Walk-forward: windows of months, each trained with several seeds, judged on tests alone.

The main path: `plan.make_plan` -> `schedule` runs `run.train_run` for each window and seed ->
`result` reads what they left -> `summary.summarise` chains the tests -> `tables` and the page.
"""
