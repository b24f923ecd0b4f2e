// SPDX-License-Identifier: Apache-2.0
// Rescale: how the numbers that one side stores follow from the pivot's. Plain
// data.
#ifndef DCP_MAPPING_LANGUAGE_RESCALE_H_
#define DCP_MAPPING_LANGUAGE_RESCALE_H_

#include <cstdint>

namespace dcp {

// A side stores v * scale + add where the pivot stores v. Megatron-core's
// zero-centered norms have add = -1. `scale` is not 0, and both are finite.
struct Rescale {
  float scale = 1;
  float add = 0;

  friend bool operator==(const Rescale&, const Rescale&) = default;
};

// Every source element x becomes ((x - from.add) / from.scale) * to.scale +
// to.add, in float32. Each step rounds once, and identity steps are left out.
struct RescaledSource {
  uint32_t source = 0;  // the source's number
  Rescale from;
  Rescale to;

  friend bool operator==(const RescaledSource&,
                         const RescaledSource&) = default;
};

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_RESCALE_H_
