// c + a.low * b.low + a.high * b.high on pairs of bfloat16 in each 32-bit lane: by one instruction where the file is
// compiled for it. Included inside an anonymous namespace, after vector.hpp; immintrin.h stands before.

struct Dot {
  typedef Vector<16>::F F;
  typedef Vector<16>::U U;
#ifdef __AVX512BF16__
  static inline F add(U a, F b, F c) { return _mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b); }
#else
  static inline F add(U a, F b, F c) {
    c = (F)(a & 0xffff0000u) * (F)((U)b & 0xffff0000u) + c;
    return (F)(a << 16) * (F)((U)b << 16) + c;
  }
#endif
};
