"""One device for each trainer, and the asserts of the shared tests rewritten."""

import pytest

pytest.register_assert_rewrite(
    "timing_rules",
    "trainer.contract",
    "trainer.gym_contract",
    "trainer.kill",
    "trainer.proofs",
    "trainer.resuming",
    "trainer.setups",
)
