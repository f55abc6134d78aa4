// The MLP of one block of rows of one expert: gate-up, SiLU and down without leaving the caches.
// Included inside an anonymous namespace, after panels.hpp.

template <class T>
struct Mlp {
  typedef typename T::X X;
  typedef typename T::A A;
  typedef typename T::V V;

  static constexpr int64_t MOST_ROWS = 96;  // a multiple of every MR; MOST_ROWS x KC packed rows stay in the second level

  static int64_t panels(int64_t N) { return up_to(N, T::NR) / T::NR; }

  // Gate and up panels alternate, so that SiLU finds both in the cache.
  static int64_t packed_gate_up(Shape s) { return 2 * packed_elements<T>(s.I, s.H); }
  static int64_t packed_down(Shape s) { return packed_elements<T>(s.H, s.I); }

  static void pack_gate_up(Shape s, const void* weight, void* packed) {
    pack_weights<T>(2 * panels(s.I), s.H, (const X*)weight, (X*)packed, [=](int64_t panel, int column) {
      const int64_t n = panel / 2 * T::NR + column;
      return n < s.I ? n + (panel % 2) * s.I : -1;
    });
  }
  static void pack_down(Shape s, const void* weight, void* packed) {
    pack_weights<T>(panels(s.H), s.I, (const X*)weight, (X*)packed, [=](int64_t panel, int column) {
      const int64_t n = panel * T::NR + column;
      return n < s.H ? n : -1;
    });
  }

  // Scratch: packed rows of one block of k, all activations, all tiles.
  static int64_t rows_bytes() { return MOST_ROWS * KC / T::PAIR * sizeof(A); }
  static int64_t activation_bytes(Shape s) { return up_to(MOST_ROWS * up_to(s.I, T::NR) / T::PAIR * sizeof(A), 64); }
  static int64_t tiles_bytes(Shape s) {
    const int64_t widest = 2 * panels(s.I) > panels(s.H) ? 2 * panels(s.I) : panels(s.H);
    return MOST_ROWS * widest * T::NR * sizeof(float);
  }
  static int64_t scratch_bytes(Shape s) { return rows_bytes() + activation_bytes(s) + tiles_bytes(s); }

  // All tiles of one block of k; done(panel) follows a panel's last block.
  template <class Done>
  static void multiply(const A* a, const X* b, int64_t columns, int64_t rows, int64_t kc, float* c, bool first,
                       Done done) {
    const int64_t steps = up_to(kc, T::PAIR) / T::PAIR, stacks = (rows + T::MR - 1) / T::MR;
    const int64_t panel_elements = steps * T::NR * T::PAIR;
    const int64_t ahead_step = (64 + stacks - 1) / stacks, share = panel_elements * sizeof(X) / stacks;
    const Tile<T> whole = tile<T, T::MR>, last = tile_of<T>(rows - (stacks - 1) * T::MR);
    for (int64_t panel = 0; panel < columns; panel++, b += panel_elements) {
      for (int64_t stack = 0; stack < stacks; stack++, c += T::MR * T::NR) {
        (stack + 1 < stacks ? whole : last)(a + stack * steps * T::MR, b, steps, c, first,
                                            (const char*)(b + panel_elements) + stack * share, ahead_step);
      }
      done(panel);
    }
  }

  // silu(gate) * up of one panel of columns, with the roundings of F.silu(gate) * up in the rows' type.
  static __attribute__((noinline)) void activate(const float* gate, const float* up, int64_t rows, int64_t I,
                                                 int64_t n0, A* activation) {
    const int64_t padded_rows = up_to(rows, T::MR);
    float line[T::NR];
    for (int64_t r = 0; r < rows; r++) {
      for (int half = 0; half < T::NR; half += T::LANES) {
        const typename V::F g = T::rounded(V::load(gate + r * T::NR + half));
        const typename V::F u = T::rounded(V::load(up + r * T::NR + half));
        V::store(line + half, T::rounded(T::rounded(V::silu(g)) * u));
      }
      for (int column = 0; column < T::NR; column++) {
        const int64_t k = n0 + column, k0 = k / KC * KC;
        if (k >= up_to(I, T::PAIR)) break;  // beyond I the weights are zero, and so is the activation
        const int64_t steps = up_to(block_k(I, k0), T::PAIR) / T::PAIR;
        A* block = activation + k0 / T::PAIR * padded_rows;
        T::put_float(block + ((r / T::MR) * steps + (k - k0) / T::PAIR) * T::MR + r % T::MR, (k - k0) % T::PAIR,
                     line[column]);
      }
    }
  }

  static __attribute__((noinline)) void write_out(const float* c, int64_t rows, int64_t columns, X* out,
                                                  int64_t stride) {
    for (int64_t r = 0; r < rows; r++, c += T::NR, out += stride) {
      // rows lie pages apart: the next panel's lines are on their way before they are written
      for (int64_t k = T::NR; k < 2 * T::NR && k < columns; k += 64 / sizeof(X)) __builtin_prefetch(out + k, 1);
      if (columns >= T::NR) {
        T::store(out, V::load(c));
        T::store(out + T::LANES, V::load(c + T::LANES));
      } else {
        X line[T::NR];
        T::store(line, V::load(c));
        T::store(line + T::LANES, V::load(c + T::LANES));
        std::memcpy(out, line, columns * sizeof(X));
      }
    }
  }

  static void mlp(Shape s, const Block& block, void* scratch) {
    A* rows_packed = (A*)scratch;
    A* activation = (A*)((char*)scratch + rows_bytes());
    float* tiles = (float*)((char*)activation + activation_bytes(s));
    const int64_t rows = block.rows, padded_rows = up_to(rows, T::MR), tile_column = padded_rows * T::NR;

    const int64_t wide = 2 * panels(s.I);
    const X* b = (const X*)block.gate_up;
    for (int64_t k0 = 0; k0 < s.H; k0 += KC) {
      const int64_t kc = block_k(s.H, k0);
      const bool last = k0 + kc == s.H;
      pack_rows<T>((const X*)block.x + k0, block.x_stride, rows, kc, rows_packed);
      multiply(rows_packed, b, wide, rows, kc, tiles, k0 == 0, [&](int64_t panel) {
        if (last && panel % 2)
          activate(tiles + (panel - 1) * tile_column, tiles + panel * tile_column, rows, s.I, panel / 2 * T::NR,
                   activation);
      });
      b += wide * up_to(kc, T::PAIR) * T::NR;
    }

    down(s, block, tiles, [&](int64_t k0, int64_t) { return activation + k0 / T::PAIR * padded_rows; });
  }

  static void linear(Shape s, const Block& block, void* scratch) {
    A* rows_packed = (A*)scratch;
    down(s, block, (float*)((char*)scratch + rows_bytes()), [&](int64_t k0, int64_t kc) {
      pack_rows<T>((const X*)block.x + k0, block.x_stride, block.rows, kc, rows_packed);
      return rows_packed;
    });
  }

  // The product with the down weight; packed(k0, kc) gives the packed rows of one block of k.
  template <class Packed>
  static void down(Shape s, const Block& block, float* tiles, Packed packed) {
    const int64_t tile_column = up_to(block.rows, T::MR) * T::NR;
    const X* b = (const X*)block.down;
    for (int64_t k0 = 0; k0 < s.I; k0 += KC) {
      const int64_t kc = block_k(s.I, k0);
      const bool last = k0 + kc == s.I;
      multiply(packed(k0, kc), b, panels(s.H), block.rows, kc, tiles, k0 == 0, [&](int64_t panel) {
        if (last)
          write_out(tiles + panel * tile_column, block.rows, s.H - panel * T::NR, (X*)block.out + panel * T::NR,
                    block.out_stride);
      });
      b += panels(s.H) * up_to(kc, T::PAIR) * T::NR;
    }
  }

  static constexpr Kernel kernel() {
    return {MOST_ROWS, packed_gate_up, packed_down, scratch_bytes, pack_gate_up, pack_down, mlp, linear};
  }
};
