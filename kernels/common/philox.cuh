// Philox 4x32-10 (Salmon et al. 2011); see philox.py.
#pragma once

struct Philox { unsigned int x[4]; };

__device__ inline Philox philox4x32(unsigned int c0, unsigned int c1, unsigned int c2,
                                    unsigned int c3, unsigned int k0, unsigned int k1) {
    for (int round = 0; round < 10; ++round) {
        unsigned int h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        unsigned int h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Philox{{c0, c1, c2, c3}};
}

// Two doubles in [0, 1) with 53 random bits each.
struct Uniform2 { double u[2]; };

__device__ inline Uniform2 philox_uniform(unsigned long long seed, unsigned int position,
                                          unsigned int step, unsigned int tag) {
    Philox r = philox4x32(position, step, tag, 0u, (unsigned int)seed, (unsigned int)(seed >> 32));
    Uniform2 out;
    for (int i = 0; i < 2; ++i) {
        unsigned long long bits =
            ((unsigned long long)(r.x[2 * i] >> 5) << 26) | (unsigned long long)(r.x[2 * i + 1] >> 6);
        out.u[i] = __dmul_rn((double)bits, 1.1102230246251565e-16);  // 2^-53
    }
    return out;
}
