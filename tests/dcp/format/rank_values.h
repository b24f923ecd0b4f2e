// SPDX-License-Identifier: Apache-2.0
// Sharded tensors as ranks pickle them, built value by value so that a test can
// change one part. For tests only; one thread.
#ifndef TESTS_DCP_FORMAT_RANK_VALUES_H_
#define TESTS_DCP_FORMAT_RANK_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp::testing {

// An object with a class and the attributes {name: value, ...}.
Value MakeObject(ValueArena& arena, absl::string_view module,
                 absl::string_view name,
                 const std::vector<std::pair<std::string, Value>>& attributes);

// A tuple of ints.
Value MakeInts(ValueArena& arena, const Dims& ints);

// A rank's part in a ShardedTensor: one shard in storage `key`, or none if the
// key is empty.
struct ShardedSpec {
  DType dtype = DType::kUInt8;
  Dims shape = {};    // the whole tensor's
  Dims offsets = {};  // the shard's
  Dims sizes = {};    // recorded for the shard
  std::string key = {};
  int64_t rank = 0;
  int64_t world_size = 1;
  // The sizes of the shard's own tensor; empty: the recorded ones.
  Dims local_sizes = {};
};
Value MakeShardedTensor(ValueArena& arena, const ShardedSpec& spec);

// A rank's part in a DTensor, in PyTorch 2.11's form.
struct DTensorSpec {
  DType dtype = DType::kUInt8;
  Dims shape;  // the whole tensor's
  Dims local;  // the rank's own tensor's
  std::string key;
  Dims mesh;
  Dims coordinate;
  std::vector<Value> placements;
};
Value MakeDTensor(ValueArena& arena, const DTensorSpec& spec);
// The same around any value in place of the rank's own tensor, and with any
// mesh.
Value MakeDTensor(ValueArena& arena, const DTensorSpec& spec, Value local,
                  Value mesh);
Value MakeMesh(ValueArena& arena, const Dims& mesh, const Dims& coordinate);

Value MakeShard(ValueArena& arena, int64_t dim);
Value MakeReplicate(ValueArena& arena);
Value MakeStridedShard(ValueArena& arena, int64_t dim, int64_t split_factor);

}  // namespace dcp::testing

#endif  // TESTS_DCP_FORMAT_RANK_VALUES_H_
