// Whether a value may be written out again. A pickle may hold objects of any
// class; we look at them as data, and hand on only those of known classes.
// Pure; any thread.
#ifndef DCP_FORMAT_INERT_VALUE_H_
#define DCP_FORMAT_INERT_VALUE_H_

#include <string>

#include "absl/status/status.h"
#include "dcp/format/value.h"

namespace dcp {

// PermissionDenied with the first global in `value` that IsStateDictGlobal does
// not know; Unimplemented with the name of a torch.nn.Module and what to do
// instead, or where an object refers to one outside of `value`.
absl::Status CheckInert(const Value& value);

// The class of a whole pickled torch.nn.Module; empty for all else.
std::string PickledModuleClass(const Value& value);

}  // namespace dcp

#endif  // DCP_FORMAT_INERT_VALUE_H_
