// SPDX-License-Identifier: Apache-2.0
// Whether a value may be written out again. A pickle may hold objects of any
// class; this library treats them as data and passes on only those of known
// classes. Pure; any thread.
#ifndef DCP_FORMAT_PICKLE_INERT_VALUE_H_
#define DCP_FORMAT_PICKLE_INERT_VALUE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dcp/format/value/value.h"

namespace dcp {

// PermissionDenied with the first global in `value` that IsStateDictGlobal does
// not know, and for a numpy array of Python objects. Unimplemented for a
// torch.nn.Module, with its name and what to do instead, or when an object
// refers to one outside of `value`.
absl::Status CheckInert(const Value& value);

// PermissionDenied when callable(*args) makes a dtype of numpy that may hold
// Python objects: numpy unpickles them.
absl::Status CheckNumpyDType(const Value& callable,
                             absl::Span<const Value> args);

// The class of an object that is data for its program but means nothing here:
// it is of a class that IsStateDictGlobal does not know, and is made from plain
// values, by NEWOBJ or as the member of an enumeration (a call with one number
// or text), with a state and contents that are plain. Empty for anything else,
// such as what a call of an unknown function would return.
std::string OpaqueClass(const Value& value);

// The class of a whole pickled torch.nn.Module; empty for anything else.
std::string PickledModuleClass(const Value& value);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_INERT_VALUE_H_
