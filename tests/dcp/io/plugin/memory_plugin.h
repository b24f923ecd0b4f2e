// SPDX-License-Identifier: Apache-2.0
// MemoryPlugin: a plugin with stores in memory, for tests of code that uses the
// C interface. All stores in a process with the same name are one.
#ifndef TESTS_DCP_IO_PLUGIN_MEMORY_PLUGIN_H_
#define TESTS_DCP_IO_PLUGIN_MEMORY_PLUGIN_H_

#include <cstddef>

#include "dcp/io/plugin/store_plugin.h"

namespace dcp::testing {

// Opening the bucket "forbidden" is refused.
const tessera_plugin& MemoryPlugin();

// Uploads in all stores that were begun and neither finished nor aborted.
size_t NumOpenUploads();

// The next write to an upload fails with ResourceExhausted.
void FailNextWrite();

}  // namespace dcp::testing

#endif  // TESTS_DCP_IO_PLUGIN_MEMORY_PLUGIN_H_
