// SPDX-License-Identifier: Apache-2.0
// An empty collections.OrderedDict, as pickles hold it. For tests; one thread.
#ifndef TESTS_DCP_FORMAT_ORDERED_DICT_H_
#define TESTS_DCP_FORMAT_ORDERED_DICT_H_

#include "dcp/format/value/value.h"

namespace dcp::testing {

inline Value OrderedDict(ValueArena& arena) {
  return arena.Call(arena.Global("collections", "OrderedDict"),
                    arena.Tuple({}));
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_FORMAT_ORDERED_DICT_H_
