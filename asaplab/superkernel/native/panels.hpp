// Panels and the micro-kernel. Included inside an anonymous namespace, after format.hpp.
//
// Weights (N, K) are packed once as [block of k][panel of NR columns][step of PAIR k][NR columns x PAIR]; a call reads
// them from front to back. Rows are packed for each block of k as [panel of MR rows][step][MR]. Missing columns and
// an odd last k are zeros; missing rows are never read. Results are tiles of MR x NR floats, [panel of columns][panel of rows].
//
// Every result is a sum over k in one order, whatever rows are beside it: within a block of k one fused
// multiply-add after the other, then the blocks' sums in turn. So a row's bits do not depend on its neighbours.

static constexpr int64_t KC = 256;  // k in a block: its weight panel stays in the first-level cache

static inline int64_t block_k(int64_t K, int64_t k0) { return K - k0 < KC ? K - k0 : KC; }

template <class T>
static int64_t packed_elements(int64_t N, int64_t K) {
  return up_to(N, T::NR) * up_to(K, T::PAIR);  // KC is even, so only the last block can be odd
}

// Panels of column_of(panel, column) -> row of the weight, or -1 for a column of zeros.
template <class T, class ColumnOf>
static void pack_weights(int64_t panels, int64_t K, const typename T::X* weight, typename T::X* packed,
                         ColumnOf column_of) {
  for (int64_t k0 = 0; k0 < K; k0 += KC) {
    const int64_t kc = block_k(K, k0), padded = up_to(kc, T::PAIR);
    for (int64_t panel = 0; panel < panels; panel++, packed += padded * T::NR) {
      for (int column = 0; column < T::NR; column++) {
        const int64_t n = column_of(panel, column);
        typename T::X* to = packed + T::place(column);
        const typename T::X* row = weight + n * K + k0;
        const int64_t given = n < 0 ? 0 : kc;
        for (int64_t k = 0; k < given; k += T::PAIR, to += T::NR * T::PAIR, row += T::PAIR) {
          to[0] = row[0];
          if constexpr (T::PAIR == 2) to[1] = k + 1 < given ? row[1] : (typename T::X)0;
        }
        for (int64_t k = up_to(given, T::PAIR); k < padded; k += T::PAIR, to += T::NR * T::PAIR) {
          for (int half = 0; half < T::PAIR; half++) to[half] = 0;
        }
      }
    }
  }
}

template <class T>
static void pack_rows(const typename T::X* x, int64_t stride, int64_t rows, int64_t kc, typename T::A* packed) {
  const int64_t steps = up_to(kc, T::PAIR) / T::PAIR;
  for (int64_t r0 = 0; r0 < rows; r0 += T::MR, packed += steps * T::MR) {
    for (int i = 0; i < T::MR && r0 + i < rows; i++) {
      const typename T::X* row = x + (r0 + i) * stride;
      if (kc % T::PAIR) packed[(steps - 1) * T::MR + i] = 0;
      for (int64_t k = 0; k < kc; k++) T::put(packed + k / T::PAIR * T::MR + i, k % T::PAIR, row[k]);
    }
  }
}

template <class T, int M>
static inline __attribute__((always_inline)) void step(const typename T::A* a, const typename T::X* b,
                                                       typename T::V::F (&sum)[M][2]) {
  typename T::V::F b0, b1;
  T::weights(b, b0, b1);
#pragma GCC unroll 16
  for (int i = 0; i < M; i++) {
    sum[i][0] = T::multiply_add(a[i], b0, sum[i][0]);
    sum[i][1] = T::multiply_add(a[i], b1, sum[i][1]);
  }
}

// One tile: M rows by NR columns over one block of k, added to what earlier blocks left there.
// Meanwhile it fetches a share of the next weight panel, one line of 64 bytes every `ahead_step` bytes.
template <class T, int M>
static void tile(const typename T::A* a, const typename T::X* b, int64_t steps, float* c, bool first,
                 const char* ahead, int64_t ahead_step) {
  typedef typename T::V::F F;
  constexpr int STEP_BYTES = T::NR * T::PAIR * sizeof(typename T::X), TOGETHER = 4;
  F sum[M][2] = {};
  int64_t s = 0;
  for (; s + TOGETHER <= steps; s += TOGETHER) {
#pragma GCC unroll 8
    for (int line = 0; line < TOGETHER * STEP_BYTES / 64; line++, ahead += ahead_step) __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
    for (int u = 0; u < TOGETHER; u++, a += T::MR, b += T::NR * T::PAIR) step<T, M>(a, b, sum);
  }
  for (; s < steps; s++, a += T::MR, b += T::NR * T::PAIR) step<T, M>(a, b, sum);
  if (first) {
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
      T::V::store(c + i * T::NR, sum[i][0]);
      T::V::store(c + i * T::NR + T::LANES, sum[i][1]);
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
      T::V::store(c + i * T::NR, T::V::load(c + i * T::NR) + sum[i][0]);
      T::V::store(c + i * T::NR + T::LANES, T::V::load(c + i * T::NR + T::LANES) + sum[i][1]);
    }
  }
}

template <class T>
using Tile = void (*)(const typename T::A*, const typename T::X*, int64_t, float*, bool, const char*, int64_t);

template <class T, int M = 1>
static Tile<T> tile_of(int64_t rows) {
  if constexpr (M < T::MR) {
    if (rows > M) return tile_of<T, M + 1>(rows);
  }
  return tile<T, M>;
}
