// SPDX-License-Identifier: Apache-2.0
// Runs ReadPickle on any bytes with both allow-lists. A value that it accepts
// is written, read back and compared, flattened and built again, and the
// tensors are parsed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/state_tree.h"
#include "dcp/format/torch/torch_tensor.h"

namespace dcp {
namespace {

// More would only make the fuzzer slow: a short input may expand to a million.
constexpr uint64_t kMaxExpanded = 10000;

void CheckTensor(const Value& value) {
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  if (!tensor.ok()) return;
  DCP_CHECK(tensor->sizes.size() == tensor->strides.size());
  const uint64_t element = ElementSize(tensor->dtype);
  if (Volume(tensor->sizes) > 0) {
    DCP_CHECK(tensor->storage_offset < tensor->storage_bytes / element);
  }
}

void CheckFlat(const Value& root) {
  const absl::StatusOr<std::vector<FlatValue>> flat = Flatten(root);
  if (!flat.ok()) return;
  std::vector<StatePath> paths;
  for (const FlatValue& leaf : *flat) {
    DCP_CHECK(PathToName(leaf.path) == leaf.fqn);
    DCP_CHECK(RenamePath(leaf.path, leaf.fqn) == leaf.path);
    if (IsTensor(leaf.value)) CheckTensor(leaf.value);
    paths.push_back(leaf.path);
  }
  ValueArena arena;
  const absl::StatusOr<Value> nested = Unflatten(arena, *flat);
  DCP_CHECK(nested.ok() == CheckPaths(paths).ok());
  if (!nested.ok()) return;
  const absl::StatusOr<std::vector<FlatValue>> again = Flatten(*nested);
  // Not the same leaves: an empty dict in a list leaves a gap, which comes
  // back as None.
  DCP_CHECK(again.ok(), again.status().ToString());
}

void Check(ByteSpan bytes, const PickleOptions& options) {
  ValueArena arena;
  const absl::StatusOr<PickleResult> result = ReadPickle(bytes, options, arena);
  if (!result.ok() || result->expanded_values > kMaxExpanded) return;
  DCP_CHECK(result->length <= bytes.size());
  ToString(result->root);
  const std::string written = WritePickle(result->root);
  ValueArena other;
  const absl::StatusOr<PickleResult> again =
      ReadPickle(AsBytes(written), options, other);
  DCP_CHECK(again.ok(), again.status().ToString());
  DCP_CHECK(again->length == written.size());
  DCP_CHECK(DeepEqual(result->root, again->root), ToString(again->root));
  DCP_CHECK(WritePickle(again->root) == written);
  if (IsTensor(result->root)) CheckTensor(result->root);
  CheckFlat(result->root);
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const dcp::ByteSpan bytes(data, size);
  dcp::Check(bytes, {.allow_global = dcp::IsStateDictGlobal,
                     .allow_persistent_ids = true});
  dcp::Check(bytes, {.allow_global = dcp::IsStateDictGlobal,
                     .allow_persistent_ids = true,
                     .keep_unknown_globals = true});
  dcp::Check(bytes, {.allow_global = dcp::IsMetadataGlobal});
  return 0;
}
