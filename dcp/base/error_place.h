// SPDX-License-Identifier: Apache-2.0
// Where an error belongs: the checkpoint, the file in it, the tensor. A Status
// carries the place in addition to the message, so that programs need not parse
// messages; Annotate and the macros in status.h keep it. Any thread.
#ifndef DCP_BASE_ERROR_PLACE_H_
#define DCP_BASE_ERROR_PLACE_H_

#include <string>

#include "absl/status/status.h"

namespace dcp {

// Fields that are not known are empty.
struct ErrorPlace {
  std::string path = {};    // the checkpoint's
  std::string file = {};    // in the checkpoint
  std::string tensor = {};  // or an object's name
  std::string offset = {};  // in the file

  friend bool operator==(const ErrorPlace&, const ErrorPlace&) = default;
};

// Adds those fields of `place` that `status` does not have yet: the code that
// saw the error first knows the place best. OK stays OK.
absl::Status WithPlace(absl::Status status, const ErrorPlace& place);

ErrorPlace StatusPlace(const absl::Status& status);

}  // namespace dcp

#endif  // DCP_BASE_ERROR_PLACE_H_
