// SPDX-License-Identifier: Apache-2.0
// OpenPluginStore: an ObjectStore over a plugin's C interface, for gs://,
// abfs://, abfss:// and hdfs://. Blocking calls run on the store's threads,
// several at the same time. An upload's parts are taken in number order, each
// once; they wait for each other in the caller's memory.
#ifndef DCP_IO_PLUGIN_PLUGIN_STORE_H_
#define DCP_IO_PLUGIN_PLUGIN_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "dcp/io/object/object_store.h"
#include "dcp/io/object/object_url.h"
#include "dcp/io/plugin/store_plugin.h"

namespace dcp {

// The library that has the stores for all these schemes.
inline constexpr char kArrowPlugin[] = "libtessera-arrow.so";

// Opens the store for the scheme and bucket in `url`. Blocks.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenPluginStore(
    const tessera_plugin& plugin, const ObjectUrl& url);

}  // namespace dcp

#endif  // DCP_IO_PLUGIN_PLUGIN_STORE_H_
