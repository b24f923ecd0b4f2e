// SPDX-License-Identifier: Apache-2.0
// OptionName: an option of the library, as errors and warnings name it. The
// library does not know how a user gives an option, so a text names the field,
// "the option overwrite", and a program puts its own name in place, such as a
// flag. An error also carries the fields that its message names, so that
// programs need not search the message. Pure; any thread.
#ifndef DCP_BASE_OPTION_NAME_H_
#define DCP_BASE_OPTION_NAME_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp {

struct OptionName {
  absl::string_view field;       // in ConvertOptions, or in a struct in it
  absl::string_view value = {};  // the advised value; empty: none
};

// "the option from = safetensors".
std::string ToText(const OptionName& option);

// `status` with `fields` after those that it carries already, each once. OK
// stays OK.
absl::Status WithOptions(absl::Status status,
                         const std::vector<std::string>& fields);
// The fields that the error carries.
std::vector<std::string> NamedOptions(const absl::Status& status);
// The fields that `text` names, for a text that becomes a part of a message.
std::vector<std::string> NamedOptions(absl::string_view text);

// `text` with `rename(option)` in place of each option that it names as ToText
// does. The name stays where that is empty.
std::string RenameOptions(
    absl::string_view text,
    absl::FunctionRef<std::string(const OptionName& option)> rename);

namespace option_name {

template <typename Part>
const Part& Text(const Part& part) {
  return part;
}
inline std::string Text(const OptionName& option) { return ToText(option); }

template <typename Part>
void AddField(const Part& /*part*/, std::vector<std::string>& /*fields*/) {}
inline void AddField(const OptionName& option,
                     std::vector<std::string>& fields) {
  fields.emplace_back(option.field);
}

}  // namespace option_name

// An error that names options: its message is the parts in a row, and it
// carries those that are an OptionName.
template <typename... Parts>
absl::Status OptionError(absl::StatusCode code, const Parts&... parts) {
  std::vector<std::string> fields;
  (option_name::AddField(parts, fields), ...);
  return WithOptions(
      absl::Status(code, absl::StrCat(option_name::Text(parts)...)), fields);
}

}  // namespace dcp

#endif  // DCP_BASE_OPTION_NAME_H_
