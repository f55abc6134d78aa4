// The MLP in tile registers. Rows are laid out once for a block, weights in groups of GROUP panels of 32 columns:
// [group][block of k][panel][step], so that a group's results stay in the second-level cache while k goes by.
#include <immintrin.h>

#include <cstring>

#include "kernels.hpp"

namespace {
#include "vector.hpp"
#include "tiles.hpp"

constexpr int64_t KC = 1024;  // k in a block
// Second-level caches of 2 MB hold a group's results and a block of k of all rows; an expert with somewhat more than 256
// rows is still one block, which reads the weights once.
constexpr int64_t GROUP = 8, MOST_ROWS = 320;
static_assert(GROUP % 2 == 0, "a gate's panel and the up projection's are in one group");

int64_t panels(int64_t N) { return up_to(N, COLUMNS) / COLUMNS; }
int64_t elements(int64_t N, int64_t K) { return up_to(N, COLUMNS) * up_to(K, STEP); }

// Calls visit(group, panels in it, first step, steps) in the order in which packed weights lie.
template <class Visit>
void in_order(int64_t panels, int64_t K, Visit visit) {
  const int64_t all = up_to(K, STEP) / STEP;
  for (int64_t group = 0; group < panels; group += GROUP)
    for (int64_t step = 0; step < all; step += KC / STEP)
      visit(group, panels - group < GROUP ? panels - group : GROUP, step, all - step < KC / STEP ? all - step : KC / STEP);
}

// column_of(panel, column) -> row of the weight, or -1 for a column of zeros.
template <class ColumnOf>
void pack(int64_t panels, int64_t K, const uint16_t* weight, uint16_t* packed, ColumnOf column_of) {
  in_order(panels, K, [&](int64_t group, int64_t count, int64_t first, int64_t steps) {
    for (int64_t panel = group; panel < group + count; panel++, packed += steps * WEIGHTS)
      for (int64_t column = 0; column < COLUMNS; column++) {
        const int64_t n = column_of(panel, column);
        for (int64_t k = 0; k < steps * STEP; k++) {
          const int64_t at = first * STEP + k;
          packed[k / STEP * WEIGHTS + place(k % STEP, column)] = n < 0 || at >= K ? 0 : weight[n * K + at];
        }
      }
  });
}

// Rows are laid as [block of k][stack of 16 rows][step][16 rows][32]; missing rows hold what was there before.
struct Laid {
  uint16_t* from;
  int64_t stacks, steps;  // of all k
  Laid(uint16_t* from, int64_t rows, int64_t K) : from(from), stacks(up_to(rows, ROWS) / ROWS), steps(up_to(K, STEP) / STEP) {}

  int64_t block_steps(int64_t first) const { return steps - first < KC / STEP ? steps - first : KC / STEP; }
  // A row's 32 values of one step in the block of k that starts at step `first`; the next step's lie a TILE further.
  uint16_t* at(int64_t row, int64_t first, int64_t step) const {
    return from + first * stacks * TILE + (row / ROWS * block_steps(first) + step - first) * TILE + row % ROWS * STEP;
  }
};

void lay_rows(const uint16_t* x, int64_t stride, int64_t rows, int64_t K, const Laid& laid) {
  for (int64_t row = 0; row < rows; row++, x += stride)
    for (int64_t first = 0; first < laid.steps; first += KC / STEP) {
      uint16_t* to = laid.at(row, first, first);
      for (int64_t k = first * STEP; k < K && k < first * STEP + KC; k += STEP, to += TILE) {
        const __mmask32 given = K - k >= STEP ? ~0u : (1u << (K - k)) - 1;
        _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(given, x + k));
      }
    }
}

// What becomes of a panel's results once its last block of k is done, a row at a time: the vector units do it while the
// tiles multiply the next panels.
struct Panel {
  int64_t rows, row;  // all, and the next one to do
  const float* result;
};

// silu(gate) * up of one panel of columns, with the roundings of F.silu(gate) * up in bfloat16.
struct Activate : Panel {
  Laid activation;
  uint16_t* to = nullptr;  // of the first row
  int64_t stack = 0;       // from 16 rows to the next
  Activate(const Laid& activation, int64_t rows) : Panel{rows, rows, nullptr}, activation(activation) {}

  void start(int64_t panel, const float* up) {
    if (panel % 2 == 0) return;  // a gate's panel waits for the up projection's
    while (row < rows) step();
    result = up, row = 0;
    const int64_t step = panel / 2, first = step / (KC / STEP) * (KC / STEP);
    to = activation.at(0, first, step), stack = activation.block_steps(first) * TILE;
  }
  void step() {
    if (row == rows) return;
    const float *up = result + row * COLUMNS, *gate = up - up_to(rows, ROWS) * COLUMNS;
    uint16_t* here = to + row / ROWS * stack + row % ROWS * STEP;
    for (int half = 0; half < COLUMNS; half += 16) {
      const __m512 g = (__m512)Rounding::rounded(Rounding::load(gate + half));
      const Rounding::F u = Rounding::rounded(Rounding::load(up + half));
      Rounding::store(here + half, Rounding::rounded((Rounding::F)silu(g)) * u);
    }
    row++;
  }
};

struct WriteOut : Panel {
  static constexpr int64_t AHEAD = 3 * COLUMNS;  // rows lie pages apart: a line is fetched panels before it is written
  Shape shape;
  uint16_t* out;
  int64_t stride, columns = 0;
  uint16_t* to = nullptr;
  WriteOut(Shape shape, const Block& block)
      : Panel{block.rows, block.rows, nullptr}, shape(shape), out((uint16_t*)block.out), stride(block.out_stride) {}

  void start(int64_t panel, const float* results) {
    while (row < rows) step();
    result = results, row = 0;
    to = out + panel * COLUMNS, columns = shape.H - panel * COLUMNS;
  }
  void step() {
    if (row == rows) return;
    const float* c = result + row * COLUMNS;
    uint16_t line[COLUMNS];
    uint16_t* here = columns >= COLUMNS ? to + row * stride : line;
    if (columns > AHEAD) _mm_prefetch((const char*)(to + row * stride + AHEAD), _MM_HINT_T0);
    _mm512_storeu_si512(here, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(c + 16), _mm512_loadu_ps(c)));
    if (here == line) std::memcpy(to + row * stride, line, columns * 2);
    row++;
  }
};

// All products of laid rows with packed weights; a panel is finished by `last`.
template <class Last>
void product(const Laid& laid, int64_t K, const uint16_t* b, int64_t panels, float* c, Last last) {
  const int64_t stacks = laid.stacks;
  in_order(panels, K, [&](int64_t group, int64_t count, int64_t first, int64_t steps) {
    const uint16_t* a = laid.at(0, first, first);
    const int64_t stack = steps * TILE, pairs = (stacks + 1) / 2, lines = up_to(WEIGHTS / 32, pairs) / pairs;
    for (int64_t panel = 0; panel < count; panel++, b += steps * WEIGHTS) {
      float* to = c + panel * stacks * ROWS * COLUMNS;
      const char* ahead = (const char*)(b + steps * WEIGHTS);
      auto meanwhile = [&] {
        for (int64_t line = 0; line < lines; line++, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
        last.step();
      };
      for (int64_t s = 0; s < stacks; s += 2) {
        float* tile = to + s * ROWS * COLUMNS;
        if (s + 1 < stacks)
          multiply<2>(a + s * stack, stack, b, steps, tile, first == 0, meanwhile);
        else
          multiply<1>(a + s * stack, stack, b, steps, tile, first == 0, meanwhile);
      }
      if (first + steps == laid.steps) last.start(group + panel, to);
    }
  });
  while (last.row < last.rows) last.step();
}

int64_t packed_gate_up(Shape s) { return 2 * elements(s.I, s.H); }
int64_t packed_down(Shape s) { return elements(s.H, s.I); }

// Gate and up panels alternate, so that SiLU finds both in the cache.
void pack_gate_up(Shape s, const void* weight, void* packed) {
  pack(2 * panels(s.I), s.H, (const uint16_t*)weight, (uint16_t*)packed, [=](int64_t panel, int64_t column) {
    const int64_t n = panel / 2 * COLUMNS + column;
    return n < s.I ? n + (panel % 2) * s.I : -1;
  });
}

void pack_down(Shape s, const void* weight, void* packed) {
  pack(panels(s.H), s.I, (const uint16_t*)weight, (uint16_t*)packed, [=](int64_t panel, int64_t column) {
    const int64_t n = panel * COLUMNS + column;
    return n < s.H ? n : -1;
  });
}

// Scratch: the rows, their activations, one group's results.
int64_t rows_elements(Shape s) { return MOST_ROWS * up_to(s.H, STEP); }
int64_t activation_elements(Shape s) { return MOST_ROWS * up_to(s.I, STEP); }
int64_t scratch_bytes(Shape s) {
  return 2 * (rows_elements(s) + activation_elements(s)) + 4 * GROUP * MOST_ROWS * COLUMNS;
}

void down(Shape s, const Block& block, const Laid& laid, float* c) {
  product(laid, s.I, (const uint16_t*)block.down, panels(s.H), c, WriteOut(s, block));
}

void mlp(Shape s, const Block& block, void* scratch) {
  const Laid laid((uint16_t*)scratch, block.rows, s.H), activation(laid.from + rows_elements(s), block.rows, s.I);
  float* c = (float*)(activation.from + activation_elements(s));
  const Tiles tiles;
  lay_rows((const uint16_t*)block.x, block.x_stride, block.rows, s.H, laid);
  product(laid, s.H, (const uint16_t*)block.gate_up, 2 * panels(s.I), c, Activate(activation, block.rows));
  down(s, block, activation, c);
}

void linear(Shape s, const Block& block, void* scratch) {
  const Laid laid((uint16_t*)scratch, block.rows, s.I);
  const Tiles tiles;
  lay_rows((const uint16_t*)block.x, block.x_stride, block.rows, s.I, laid);
  down(s, block, laid, (float*)(laid.from + activation_elements(s)));
}
}  // namespace

extern const Kernel amx_bfloat16 = {MOST_ROWS,    packed_gate_up, packed_down, scratch_bytes,
                                    pack_gate_up, pack_down,      mlp,         linear};
