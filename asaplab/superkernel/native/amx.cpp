// The MLP in tile registers. Rows are laid out once for a block, weights in groups of GROUP panels of 32 columns:
// [group][block of k][panel][step], so that a group's results stay in the second-level cache while k goes by.
#include <immintrin.h>

#include <cstring>

#include "kernels.hpp"

namespace {
#include "vector.hpp"
#include "tiles.hpp"

constexpr int64_t KC = 512;  // k in a block: its weight panel stays in the first-level cache
constexpr int64_t GROUP = 16, MOST_ROWS = 128;

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

// silu(gate) * up of one panel of columns, with the roundings of F.silu(gate) * up in bfloat16.
void activate(const float* gate, const float* up, int64_t rows, const Laid& activation, int64_t step) {
  for (int64_t row = 0; row < rows; row++, gate += COLUMNS, up += COLUMNS) {
    uint16_t* to = activation.at(row, step / (KC / STEP) * (KC / STEP), step);
    for (int half = 0; half < COLUMNS; half += 16) {
      const __m512 g = (__m512)Rounding::rounded(Rounding::load(gate + half));
      const Rounding::F u = Rounding::rounded(Rounding::load(up + half));
      Rounding::store(to + half, Rounding::rounded((Rounding::F)silu(g)) * u);
    }
  }
}

void write_out(const float* c, int64_t rows, int64_t columns, uint16_t* out, int64_t stride) {
  for (int64_t row = 0; row < rows; row++, c += COLUMNS, out += stride) {
    uint16_t line[COLUMNS];
    uint16_t* to = columns >= COLUMNS ? out : line;
    Rounding::store(to, Rounding::load(c));
    Rounding::store(to + 16, Rounding::load(c + 16));
    if (to == line) std::memcpy(out, line, columns * 2);
  }
}

// All products of laid rows with packed weights; done(panel, its results) follows a panel's last block of k.
template <class Done>
void product(const Laid& laid, int64_t K, const uint16_t* b, int64_t panels, float* c, Done done) {
  const int64_t stacks = laid.stacks;
  in_order(panels, K, [&](int64_t group, int64_t count, int64_t first, int64_t steps) {
    const uint16_t* a = laid.at(0, first, first);
    const int64_t stack = steps * TILE, pairs = (stacks + 1) / 2, lines = up_to(WEIGHTS / 32, pairs) / pairs;
    for (int64_t panel = 0; panel < count; panel++, b += steps * WEIGHTS) {
      float* to = c + panel * stacks * ROWS * COLUMNS;
      const char* ahead = (const char*)(b + steps * WEIGHTS);
      for (int64_t s = 0; s < stacks; s += 2, ahead += steps * lines * 64) {
        float* tile = to + s * ROWS * COLUMNS;
        if (s + 1 < stacks)
          multiply<2>(a + s * stack, stack, b, steps, tile, first == 0, ahead, lines);
        else
          multiply<1>(a + s * stack, stack, b, steps, tile, first == 0, ahead, lines);
      }
      if (first + steps == laid.steps) done(group + panel, to);
    }
  });
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
  product(laid, s.I, (const uint16_t*)block.down, panels(s.H), c, [&](int64_t panel, const float* result) {
    write_out(result, block.rows, s.H - panel * COLUMNS, (uint16_t*)block.out + panel * COLUMNS, block.out_stride);
  });
}

void mlp(Shape s, const Block& block, void* scratch) {
  const int64_t rows = block.rows, panel_floats = up_to(rows, ROWS) * COLUMNS;
  const Laid laid((uint16_t*)scratch, rows, s.H), activation(laid.from + rows_elements(s), rows, s.I);
  float* c = (float*)(activation.from + activation_elements(s));
  const Tiles tiles;
  lay_rows((const uint16_t*)block.x, block.x_stride, rows, s.H, laid);
  product(laid, s.H, (const uint16_t*)block.gate_up, 2 * panels(s.I), c, [&](int64_t panel, const float* up) {
    if (panel % 2) activate(up - panel_floats, up, rows, activation, panel / 2);
  });
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
