// Intel's tile registers (AMX): eight of 16 rows by 64 bytes. One instruction multiplies 16 rows of 32 bfloat16 by 32 x
// 16 weights and adds to 16 x 16 floats, pair by pair of k, whatever the other rows hold; denormals count as zeros.
// Included inside an anonymous namespace, after vector.hpp.

static constexpr int64_t ROWS = 16, COLUMNS = 32, STEP = 32;  // of a tile of x, of a pair of weight tiles, and their k
static constexpr int64_t TILE = ROWS * STEP, WEIGHTS = COLUMNS * STEP;  // elements of both

// All eight registers whole, as long as this lives; every library sets them anew before it uses them.
struct Tiles {
  Tiles() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static const Config config;  // some compilers would not write a local one whole: see `multiply`
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
};

// Floats to bfloat16 and back by one instruction.
struct Rounding : Vector<16> {
  static inline __m256i bits(F v) { return (__m256i)_mm512_cvtneps_pbh((__m512)v); }
  static inline F rounded(F v) { return (F)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits(v)), 16); }
  static inline void store(uint16_t* p, F v) { _mm256_storeu_si256((__m256i*)p, bits(v)); }
};

// 2^x for x <= 126, to 3e-7 of its value.
static inline __m512 power_of_two(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_set1_ps(1.877576688e-03f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(8.989340046e-03f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.582631810e-02f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401536170e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931530732e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999999251e-01f));
  return _mm512_scalef_ps(p, x);  // p * 2^floor(x)
}

// x / (1 + e^-x); the reciprocal is refined once.
static inline __m512 silu(__m512 x) {
  const __m512 power = _mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f));
  const __m512 d = _mm512_add_ps(_mm512_set1_ps(1.f), power_of_two(_mm512_min_ps(_mm512_set1_ps(126.f), power)));
  const __m512 r = _mm512_rcp14_ps(d);
  return _mm512_mul_ps(x, _mm512_mul_ps(r, _mm512_fnmadd_ps(d, r, _mm512_set1_ps(2.f))));
}

// Where weight (k, column) of one step lies: pairs of k side by side, as the instruction reads them.
static inline int64_t place(int64_t k, int64_t column) { return k / 2 * 2 * COLUMNS + 2 * column + k % 2; }

// c (16 M rows x 32 floats, row-major) = [c +] a (M stacks, `stack` elements apart, of `steps` tiles) times `steps` of
// weights. meanwhile() is called after each step: work for the vector units, in pieces small enough to run beside it.
template <int M, class Meanwhile>
static inline void multiply(const uint16_t* a, int64_t stack, const uint16_t* b, int64_t steps, float* c, bool first,
                            Meanwhile meanwhile) {
  asm volatile("" ::: "memory");  // some compilers do not know that a tile load reads memory
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    if (M == 2) _tile_zero(2);
    if (M == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, c, COLUMNS * 4);
    _tile_loadd(1, c + 16, COLUMNS * 4);
    if (M == 2) _tile_loadd(2, c + ROWS * COLUMNS, COLUMNS * 4);
    if (M == 2) _tile_loadd(3, c + ROWS * COLUMNS + 16, COLUMNS * 4);
  }
  for (int64_t s = 0; s < steps; s++, a += TILE, b += WEIGHTS) {
    _tile_loadd(6, b, COLUMNS * 4);
    _tile_loadd(4, a, STEP * 2);
    _tile_loadd(7, b + 32, COLUMNS * 4);
    if (M == 2) _tile_loadd(5, a + stack, STEP * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (M == 2) _tile_dpbf16ps(2, 5, 6);
    if (M == 2) _tile_dpbf16ps(3, 5, 7);
    meanwhile();
  }
  _tile_stored(0, c, COLUMNS * 4);
  _tile_stored(1, c + 16, COLUMNS * 4);
  if (M == 2) _tile_stored(2, c + ROWS * COLUMNS, COLUMNS * 4);
  if (M == 2) _tile_stored(3, c + ROWS * COLUMNS + 16, COLUMNS * 4);
}
