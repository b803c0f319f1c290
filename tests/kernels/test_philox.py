import numpy as np
import pytest

from onegraph.kernels.common.philox import philox4x32, philox_uniform


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
    ids=["zeros", "ones", "pi"],
)  # fmt: skip
def test_known_answers_of_random123(counter: str, key: str, words: str) -> None:
    def parse(text: str) -> list[int]:
        return [int(word, 16) for word in text.split()]

    k0, k1 = parse(key)
    assert philox4x32(parse(counter), (k0, k1)).tolist() == parse(words)


def test_a_uniform_is_53_bits_of_two_words() -> None:
    # Words of the zero counter and key: (hi >> 5) * 2^26 + (lo >> 6), over 2^53.
    first, second = philox_uniform(0, 0, 0, 0)
    assert first * 2**53 == (0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)
    assert second * 2**53 == (0xBC57AC4C >> 5) * 2**26 + (0x9B00DBD8 >> 6)


def test_position_step_tag_and_both_halves_of_the_seed_matter() -> None:
    draws = {
        float(philox_uniform(seed, position, step, tag)[0])
        for seed, position, step, tag in [
            (1, 2, 3, 4),
            (1 << 32, 2, 3, 4),
            (1, 3, 2, 4),
            (1, 2, 4, 3),
            (2, 1, 3, 4),
        ]
    }
    assert len(draws) == 5


def test_uniforms_lie_in_the_half_open_interval() -> None:
    u = philox_uniform(9, np.arange(100_000), 0, 1)
    assert u.shape == (100_000, 2)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert abs(u.mean() - 0.5) < 5 * (1 / 12 / u.size) ** 0.5


def test_a_64_bit_step_is_taken_modulo_2_to_32() -> None:
    assert (
        philox_uniform(1, 0, np.int64(2**32 + 5), 1).tolist() == philox_uniform(1, 0, 5, 1).tolist()
    )
