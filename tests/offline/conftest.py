"""The asserts of the shared tests, rewritten."""

import pytest

pytest.register_assert_rewrite("offline.contract", "trainer.setups")
