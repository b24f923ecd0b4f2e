// SPDX-License-Identifier: Apache-2.0
// Changes to elements while they move: conversion between floating-point types,
// and undoing byte order, conjugation and negation. Also compares two runs of
// elements. Rounding matches PyTorch's `to` (to nearest even; float8_e4m3fn
// overflows to 448, e5m2 to infinity). Pure; any thread; any alignment.
#ifndef DCP_TENSOR_ELEMENT_H_
#define DCP_TENSOR_ELEMENT_H_

#include <cstdint>
#include <optional>

#include "dcp/tensor/dtype.h"

namespace dcp {

// How stored elements become the requested ones. The steps apply in the order
// of the fields.
struct ElementTransform {
  bool swap_bytes = false;  // stored in big-endian order
  bool conj = false;        // complex types only
  bool neg = false;
  // If `from` is float4_e2m1fn_x2 and `to` is not: the half of each byte that
  // holds the element.
  bool high_half = false;
  DType from = DType::kFloat32;
  DType to = DType::kFloat32;

  bool is_copy() const { return !swap_bytes && !conj && !neg && from == to; }

  friend bool operator==(const ElementTransform&,
                         const ElementTransform&) = default;
};

// Whether `from` can be converted to `to`: they are equal, or both are floating
// point and neither is float4_e2m1fn_x2 or float8_e8m0fnu. TransformElements
// also converts one half of float4_e2m1fn_x2.
bool CanConvert(DType from, DType to);

// Transforms `num_elements` adjacent elements; the ranges do not overlap. If
// `num_beyond` is given, adds the number of elements beyond the range of `to`:
// numbers that became infinite, NaN or the largest number, and infinities that
// became another value.
void TransformElements(const ElementTransform& transform, const uint8_t* src,
                       uint8_t* dst, uint64_t num_elements,
                       uint64_t* num_beyond = nullptr);

struct ElementDifference {
  uint64_t num_different = 0;
  uint64_t first_different = 0;  // index; meaningful if num_different > 0
  double max_abs = 0;            // NaN against a number counts as infinity
  // Greatest |a - b| / |b|, for complex types per component; infinite where b
  // is 0.
  double max_rel = 0;
  // Greatest distance in representable values, for floating-point types of at
  // most 64 bits; saturates. For integers, the absolute difference.
  uint64_t max_ulp = 0;
};

// When two elements count as equal: |a - b| <= atol + rtol * |b|,
// torch.allclose's formula, in double precision; for complex numbers |x| is the
// modulus. An infinity equals only itself. Neither field may be negative or
// NaN.
struct Tolerance {
  double atol = 0;
  double rtol = 0;
  bool equal_nan = true;  // NaNs with any bits equal each other
};

// Compares elements of type `dtype` and adds to `difference` how far apart the
// unequal ones are; `first_index` is the first given element's index. Without a
// tolerance the bits decide: 0 and -0 differ, and so do NaNs with different
// bits.
void CompareElements(DType dtype, const uint8_t* a, const uint8_t* b,
                     uint64_t num_elements, uint64_t first_index,
                     ElementDifference& difference,
                     const std::optional<Tolerance>& tolerance = {});

}  // namespace dcp

#endif  // DCP_TENSOR_ELEMENT_H_
