// SPDX-License-Identifier: Apache-2.0
// Whether a value may be written out again. A pickle may hold objects of any
// class; this library treats them as data and passes on only known classes.
// Pure; any thread.
#ifndef DCP_FORMAT_PICKLE_INERT_VALUE_H_
#define DCP_FORMAT_PICKLE_INERT_VALUE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/format/value/value.h"

namespace dcp {

// PermissionDenied with the first global in `value` that IsStateDictGlobal does
// not know, and for a numpy array of Python objects. Unimplemented for a
// torch.nn.Module, with the class name and advice, or when an object refers to
// one outside `value`.
absl::Status CheckInert(const Value& value);

// PermissionDenied when callable(*args) makes a numpy dtype that may hold
// Python objects: numpy unpickles them.
absl::Status CheckNumpyDType(const Value& callable,
                             absl::Span<const Value> args);

// The class of an object that is data for the program but has no meaning here:
// IsStateDictGlobal does not know the class, and the object is made from plain
// values, by NEWOBJ or as an enumeration member (a call with one number or
// text), with plain state and contents. Empty for any other value, such as the
// result of calling an unknown function.
std::string OpaqueClass(const Value& value);

// The class of a whole pickled torch.nn.Module; empty for other values.
std::string PickledModuleClass(const Value& value);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_INERT_VALUE_H_
