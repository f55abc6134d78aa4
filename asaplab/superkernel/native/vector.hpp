// Vectors of LANES floats in the compiler's own vector types, so that one text serves 8 lanes (AVX2) and 16 (AVX512).
// Included inside an anonymous namespace: each source file is compiled for its own instruction set, and nothing of it
// may be merged with another file's.

static inline int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

template <int LANES>
struct Types;

template <>
struct Types<8> {
  typedef float F __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t S __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint32_t U __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint16_t H __attribute__((vector_size(16), aligned(2), may_alias));
};

template <>
struct Types<16> {
  typedef float F __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t S __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t U __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint16_t H __attribute__((vector_size(32), aligned(2), may_alias));
};

template <int LANES>
struct Vector : Types<LANES> {
  typedef typename Types<LANES>::F F;
  typedef typename Types<LANES>::S S;
  typedef typename Types<LANES>::U U;
  typedef typename Types<LANES>::H H;

  static inline F load(const float* p) { return *(const F*)p; }
  static inline void store(float* p, F v) { *(F*)p = v; }
  static inline F broadcast(float a) { return a - F{}; }

  // to bfloat16 and back, to nearest even; a NaN stays one
  static inline U bfloat16_bits(F v) {
    U u = (U)v;
    U rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (u & 0x7fffffffu) > 0x7f800000u ? (u | 0x400000u) : rounded;
  }
  static inline F round_bfloat16(F v) { return (F)(bfloat16_bits(v) & 0xffff0000u); }
  static inline F load_bfloat16(const uint16_t* p) {
    return (F)(__builtin_convertvector(*(const H*)p, U) << 16);
  }
  static inline void store_bfloat16(uint16_t* p, F v) {
    *(H*)p = __builtin_convertvector(bfloat16_bits(v) >> 16, H);
  }

  // e^x to about 1e-7 of its value. Outside [-87, 88] it stops growing, which silu does not notice in float32.
  static inline F exp(F x) {
    const F low = broadcast(-87.f), high = broadcast(88.f);
    x = x < low ? low : x;
    x = x > high ? high : x;
    const float shift = 12582912.f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    F t = x * 1.44269504f + shift;
    F n = t - shift;
    F r = x - n * 0.693359375f;  // ln 2 in two parts
    r = r - n * -2.12194440e-4f;
    F p = r * 1.9875691500e-4f + 1.3981999507e-3f;  // Cephes' polynomial for e^r, |r| <= ln 2 / 2
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.f);
    return (F)((S)p + ((S)t << 23));
  }
  static inline F silu(F x) { return x / (1.f + exp(-x)); }
};
