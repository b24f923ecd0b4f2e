// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/dialect.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace dcp {
namespace {

// In the enumeration's order.
constexpr absl::string_view kDialectNames[] = {
    "dcp",           "safetensors",   "pt",           "ranks",
    "deepspeed",     "accelerate",    "transformers", "megatron",
    "torchsnapshot", "bytecheckpoint"};
static_assert(std::size(kDialectNames) ==
              static_cast<size_t>(Dialect::kByteCheckpoint) + 1);

}  // namespace

absl::string_view DialectName(Dialect dialect) {
  return kDialectNames[static_cast<size_t>(dialect)];
}

absl::StatusOr<Dialect> ParseDialect(absl::string_view name) {
  for (size_t i = 0; i < std::size(kDialectNames); ++i) {
    if (name == kDialectNames[i]) return static_cast<Dialect>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not ", DialectNames()));
}

std::string DialectNames() {
  std::string text;
  constexpr size_t kCount = std::size(kDialectNames);
  for (size_t i = 0; i < kCount; ++i) {
    absl::StrAppend(&text,
                    i == 0            ? ""
                    : i + 1 == kCount ? " or "
                                      : ", ",
                    kDialectNames[i]);
  }
  return text;
}

}  // namespace dcp
