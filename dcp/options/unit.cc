// SPDX-License-Identifier: Apache-2.0

#include "dcp/options/unit.h"

#include <array>

#include "absl/strings/match.h"

namespace dcp {
namespace {

constexpr uint64_t kKibi = 1024;
constexpr std::array<Unit, 14> kByteUnits = {{
    {"TiB", kKibi* kKibi* kKibi* kKibi},
    {"GiB", kKibi* kKibi* kKibi},
    {"MiB", kKibi* kKibi},
    {"KiB", kKibi},
    {"B", 1},
    {"", 1},
    {"T", kKibi* kKibi* kKibi* kKibi},
    {"G", kKibi* kKibi* kKibi},
    {"M", kKibi* kKibi},
    {"K", kKibi},
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"KB", 1'000},
}};

}  // namespace

absl::Span<const Unit> ByteUnits() { return kByteUnits; }

std::optional<uint64_t> UnitFactor(absl::string_view name,
                                   absl::Span<const Unit> units) {
  for (const Unit& unit : units) {
    if (absl::EqualsIgnoreCase(unit.name, name)) return unit.factor;
  }
  return std::nullopt;
}

}  // namespace dcp
