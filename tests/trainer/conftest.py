"""One device for each trainer, and the asserts of the shared tests rewritten."""

import pytest

pytest.register_assert_rewrite(
    "timing_rules",
    "trainer.contract",
    "trainer.fused_contract",
    "trainer.proofs",
    "trainer.setups",
)
