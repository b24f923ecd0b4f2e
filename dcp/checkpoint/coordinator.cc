#include "dcp/checkpoint/coordinator.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/base/status.h"

namespace dcp {
namespace {

// "<code> <message>"; OK is "0 ".
std::string Encode(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::Status Decode(absl::string_view text) {
  const size_t space = text.find(' ');
  int code = 0;
  if (space == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(0, space), &code)) {
    return absl::InternalError("a rank sent no status");
  }
  return absl::Status(static_cast<absl::StatusCode>(code),
                      text.substr(space + 1));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SingleProcessCoordinator::Gather(
    std::string value) {
  return std::vector<std::string>{std::move(value)};
}

absl::StatusOr<std::string> SingleProcessCoordinator::Scatter(
    std::vector<std::string> values) {
  DCP_CHECK(values.size() == 1, "values=", values.size());
  return std::move(values[0]);
}

absl::Status Agree(Coordinator& coordinator, const absl::Status& mine) {
  DCP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                       coordinator.Gather(Encode(mine)));
  std::vector<std::string> verdicts;
  if (coordinator.rank() == 0) {
    absl::Status first;
    for (size_t rank = 0; rank < all.size() && first.ok(); ++rank) {
      first = Annotate(Decode(all[rank]), "rank ", rank);
    }
    verdicts.assign(all.size(), Encode(first));
  }
  DCP_ASSIGN_OR_RETURN(const std::string verdict,
                       coordinator.Scatter(std::move(verdicts)));
  return Decode(verdict);
}

}  // namespace dcp
