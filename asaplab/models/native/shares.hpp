// How a row of softmax shares is kept for the multiplication with the values: as floats, or as pairs of bfloat16.
// Included inside an anonymous namespace, after format.hpp.

template <class Format>
struct FloatShares : Format {
  typedef typename Format::V V;
  static inline typename V::F rounded_share(typename V::F e) { return e; }
  static inline void put_shares(float* row, int64_t key, typename V::F e) { V::store(row + key, e); }
};

template <class Format>
struct Bfloat16Shares : Format {
  typedef typename Format::V V;
  static inline typename V::F rounded_share(typename V::F e) { return V::round_bfloat16(e); }
  static inline void put_shares(uint32_t* row, int64_t key, typename V::F e) {
    V::store_bfloat16((uint16_t*)row + key, e);
  }
};
