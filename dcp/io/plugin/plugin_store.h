// SPDX-License-Identifier: Apache-2.0
// OpenPluginStore: an ObjectStore over the C interface of a plugin, for gs://,
// abfs://, abfss:// and hdfs://. Its threads make the calls, which block, some
// at the same time. The parts of an upload are taken in the order of their
// numbers, each once; they wait for each other in the caller's memory.
#ifndef DCP_IO_PLUGIN_PLUGIN_STORE_H_
#define DCP_IO_PLUGIN_PLUGIN_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/plugin/store_plugin.h"

namespace dcp {

// The library with the stores of all these schemes.
inline constexpr char kArrowPlugin[] = "libtessera-arrow.so";

// The store of the scheme and bucket of `url`. Blocks.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenPluginStore(
    const tessera_plugin& plugin, const ObjectUrl& url);

}  // namespace dcp

#endif  // DCP_IO_PLUGIN_PLUGIN_STORE_H_
