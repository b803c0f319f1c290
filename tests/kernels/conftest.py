import pytest

pytest.register_assert_rewrite("device_rules")
