import pytest

pytest.register_assert_rewrite("timing_rules")
