#include "dcp/checkpoint/open/dialect.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace dcp {
namespace {

// In the order of the enumeration.
constexpr absl::string_view kNames[] = {
    "dcp",           "safetensors",   "pt",           "ranks",
    "deepspeed",     "accelerate",    "transformers", "megatron",
    "torchsnapshot", "bytecheckpoint"};
static_assert(std::size(kNames) ==
              static_cast<size_t>(Dialect::kByteCheckpoint) + 1);

}  // namespace

absl::string_view DialectName(Dialect dialect) {
  return kNames[static_cast<size_t>(dialect)];
}

absl::StatusOr<Dialect> ParseDialect(absl::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Dialect>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not ", DialectNames()));
}

std::string DialectNames() {
  std::string text;
  constexpr size_t kCount = std::size(kNames);
  for (size_t i = 0; i < kCount; ++i) {
    absl::StrAppend(&text,
                    i == 0            ? ""
                    : i + 1 == kCount ? " or "
                                      : ", ",
                    kNames[i]);
  }
  return text;
}

}  // namespace dcp
