import pytest

pytest.register_assert_rewrite("replay.contract")
