// SPDX-License-Identifier: Apache-2.0
// Looks in the descriptor of ConvertRequest for a field that is called as the
// option, or "no_" and the option if it clears it.
#include "proto/request_field.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "tessera/v1/job_service.pb.h"

namespace dcp {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr absl::string_view kClears = "no_";

// The one option that has another name in requests.
constexpr absl::string_view kFormatOption = "to";
constexpr absl::string_view kFormatField = "format";

// The path of the first field of `message`, or of a message in it, that is
// called `name`.
std::string PathIn(const Descriptor& message, const std::string& name) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.name() == name || field.name() == absl::StrCat(kClears, name)) {
      return field.name();
    }
    if (field.message_type() == nullptr || field.is_repeated()) continue;
    const std::string inner = PathIn(*field.message_type(), name);
    if (!inner.empty()) return absl::StrCat(field.name(), ".", inner);
  }
  return "";
}

}  // namespace

std::string RequestField(absl::string_view option) {
  return PathIn(*tessera::v1::ConvertRequest::descriptor(),
                std::string(option == kFormatOption ? kFormatField : option));
}

std::string RequestOption(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('.') + 1);
  return std::string(name == kFormatField ? kFormatOption
                                          : absl::StripPrefix(name, kClears));
}

}  // namespace dcp
