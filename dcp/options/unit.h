// SPDX-License-Identifier: Apache-2.0
// Units for sizes, as people write and read them in options. Pure; any thread.
#ifndef DCP_OPTIONS_UNIT_H_
#define DCP_OPTIONS_UNIT_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dcp {

struct Unit {
  absl::string_view name;
  uint64_t factor;
};

// Powers of 1024: B, KiB, MiB, GiB, TiB, where "iB" may be left out; powers of
// 1000: KB, MB, GB, TB. An empty name is one byte. To show a size, use the
// first unit that divides it.
absl::Span<const Unit> ByteUnits();

// The unit's factor, whatever the case of `name`; nullopt if none has the name.
std::optional<uint64_t> UnitFactor(absl::string_view name,
                                   absl::Span<const Unit> units);

}  // namespace dcp

#endif  // DCP_OPTIONS_UNIT_H_
