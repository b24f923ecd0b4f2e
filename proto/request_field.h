// SPDX-License-Identifier: Apache-2.0
// Which field of a request sets an option of the library, and the reverse: an
// error that a daemon sends names fields, because its client knows no options.
// The fields are those of ConvertRequest; the others have the same names. Pure;
// any thread.
#ifndef PROTO_REQUEST_FIELD_H_
#define PROTO_REQUEST_FIELD_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp {

// "destination.overwrite" for the option overwrite; empty if no field sets it.
std::string RequestField(absl::string_view option);

// The option that the field at `path` sets.
std::string RequestOption(absl::string_view path);

}  // namespace dcp

#endif  // PROTO_REQUEST_FIELD_H_
