// SPDX-License-Identifier: Apache-2.0
// TransposeTile: a square of elements, one cache line each way, transposed in
// registers. Only for strided_copy.cc; pure; any thread.
#ifndef DCP_TENSOR_TRANSPOSE_TILE_H_
#define DCP_TENSOR_TRANSPOSE_TILE_H_

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace dcp {

inline constexpr size_t kLineBytes = 64;

// Vectors of 16 bytes, which every supported compiler can shuffle.
template <typename T>
struct Vector {
  using Type __attribute__((vector_size(16))) = T;
};

// The elements in the lower (kBegin = 0) or upper halves of two vectors,
// alternating.
template <typename T, size_t kBegin, size_t... kIndices>
typename Vector<T>::Type Interleave(typename Vector<T>::Type a,
                                    typename Vector<T>::Type b,
                                    std::index_sequence<kIndices...>) {
  return __builtin_shufflevector(
      a, b,
      (kBegin + kIndices / 2 +
       (kIndices % 2 == 0 ? 0 : sizeof...(kIndices)))...);
}

// Transposes the square at `src`, 16 bytes each way. Each round interleaves the
// first half of the rows with the second, which moves one bit from the row
// number to the column number.
template <typename T, size_t kPitch>
void TransposeSquare(const T* src, T* dst) {
  using V = typename Vector<T>::Type;
  constexpr size_t kSize = 16 / sizeof(T);
  constexpr auto kIndices = std::make_index_sequence<kSize>();
  std::array<V, kSize> rows;
  std::array<V, kSize> next;
  for (size_t i = 0; i < kSize; ++i) {
    std::memcpy(&rows[i], src + i * kPitch, sizeof(V));
  }
  for (size_t round = 1; round < kSize; round *= 2) {
    for (size_t i = 0; i < kSize / 2; ++i) {
      const V& a = rows[i];
      const V& b = rows[i + kSize / 2];
      next[2 * i] = Interleave<T, 0>(a, b, kIndices);
      next[2 * i + 1] = Interleave<T, kSize / 2>(a, b, kIndices);
    }
    rows = next;
  }
  for (size_t i = 0; i < kSize; ++i) {
    std::memcpy(dst + i * kPitch, &rows[i], sizeof(V));
  }
}

// A tile: a line of elements each way.
template <typename T>
struct Tile {
  static constexpr size_t kSize = kLineBytes / sizeof(T);
  alignas(kLineBytes) T rows[kSize][kSize];
};

template <typename T>
void TransposeTile(const Tile<T>& from, Tile<T>& to) {
  constexpr size_t kSize = Tile<T>::kSize;
  if constexpr (sizeof(T) == 16) {
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t j = 0; j < kSize; ++j) to.rows[i][j] = from.rows[j][i];
    }
  } else {
    constexpr size_t kStep = 16 / sizeof(T);
    for (size_t i = 0; i < kSize; i += kStep) {
      for (size_t j = 0; j < kSize; j += kStep) {
        TransposeSquare<T, kSize>(&from.rows[j][i], &to.rows[i][j]);
      }
    }
  }
}

}  // namespace dcp

#endif  // DCP_TENSOR_TRANSPOSE_TILE_H_
