// Where an error belongs: which checkpoint, which file of it, which tensor.
// Kept in the Status beside its message, so that programs need not take
// messages apart; Annotate and returns keep it. Any thread.
#ifndef DCP_BASE_ERROR_PLACE_H_
#define DCP_BASE_ERROR_PLACE_H_

#include <string>

#include "absl/status/status.h"

namespace dcp {

// What is not known is empty.
struct ErrorPlace {
  std::string path = {};    // of the checkpoint
  std::string file = {};    // in it
  std::string tensor = {};  // or object
  std::string offset = {};  // in the file

  friend bool operator==(const ErrorPlace&, const ErrorPlace&) = default;
};

// `status` with what `place` knows and it does not: the one who saw the error
// first knows best. OK stays OK.
absl::Status WithPlace(absl::Status status, const ErrorPlace& place);

ErrorPlace PlaceOf(const absl::Status& status);

}  // namespace dcp

#endif  // DCP_BASE_ERROR_PLACE_H_
