// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/json/json_value.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "dcp/base/status.h"
#include "dcp/format/json/json.h"

namespace dcp {
namespace {

using EventKind = JsonEvent::Kind;

// A number without point and exponent is a Python integer; an integer with more
// than 64 bits becomes a float.
Value ParseNumber(absl::string_view text) {
  int64_t integer = 0;
  if (absl::SimpleAtoi(text, &integer)) return Value::Int(integer);
  double number = 0;
  // Beyond the range it is an infinity, as in Python.
  if (!absl::SimpleAtod(text, &number)) return Value();
  return Value::Float(number);
}

Value MakeUnsigned(uint64_t number) {
  return number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
             ? Value::Int(static_cast<int64_t>(number))
             : Value::Float(static_cast<double>(number));
}

}  // namespace

absl::StatusOr<Value> ParseJsonValue(absl::string_view text,
                                     ValueArena& arena) {
  // The children so far in each open container, keys included.
  std::vector<std::vector<Value>> open(1);
  const auto close = [&](bool is_object) {
    const std::vector<Value> children = std::move(open.back());
    open.pop_back();
    open.back().push_back(is_object ? arena.Dict(children)
                                    : arena.List(children));
  };
  DCP_RETURN_IF_ERROR(ParseJson(text, [&](const JsonEvent& event) {
    switch (event.kind) {
      case EventKind::kBeginObject:
      case EventKind::kBeginArray:
        open.emplace_back();
        break;
      case EventKind::kEndObject:
        close(/*is_object=*/true);
        break;
      case EventKind::kEndArray:
        close(/*is_object=*/false);
        break;
      case EventKind::kKey:
      case EventKind::kString:
        open.back().push_back(arena.Str(event.text));
        break;
      case EventKind::kUnsigned:
        open.back().push_back(MakeUnsigned(event.number));
        break;
      case EventKind::kOtherNumber:
        open.back().push_back(ParseNumber(event.text));
        break;
      case EventKind::kBool:
        open.back().push_back(Value::Bool(event.number != 0));
        break;
      case EventKind::kNull:
        open.back().emplace_back();
        break;
    }
    return absl::OkStatus();
  }));
  return open[0][0];
}

}  // namespace dcp
