// Tested by tests/dcp/checkpoint/open/dialects/ranks_opener_test.cc.
#include "dcp/checkpoint/open/dialects/dialect.h"

#include "absl/strings/str_cat.h"

namespace dcp {

absl::string_view DialectName(Dialect dialect) {
  switch (dialect) {
    case Dialect::kNone:
      return "";
    case Dialect::kRanks:
      return "ranks";
    case Dialect::kDeepSpeed:
      return "deepspeed";
  }
  return "";
}

absl::StatusOr<Dialect> ParseDialect(absl::string_view name) {
  for (const Dialect dialect : {Dialect::kRanks, Dialect::kDeepSpeed}) {
    if (name == DialectName(dialect)) return dialect;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown dialect '", name, "'; expected ranks or deepspeed"));
}

}  // namespace dcp
