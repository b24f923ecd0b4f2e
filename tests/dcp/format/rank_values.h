// SPDX-License-Identifier: Apache-2.0
// Sharded tensors as the pickles of ranks describe them, built value by value
// so that a test can change one part. For tests only; one thread.
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

// An object of a class, with the attributes {name: value, ...}.
Value MakeObject(ValueArena& arena, absl::string_view module,
                 absl::string_view name,
                 const std::vector<std::pair<std::string, Value>>& attributes);

// A tuple of ints.
Value MakeInts(ValueArena& arena, const Dims& ints);

// What a rank has of a ShardedTensor: one shard in storage `key`, or none if
// the key is empty.
struct ShardedSpec {
  DType dtype = DType::kUInt8;
  Dims shape = {};    // of the whole
  Dims offsets = {};  // of the shard
  Dims sizes = {};    // recorded for the shard
  std::string key = {};
  int64_t rank = 0;
  int64_t world_size = 1;
  // The sizes of the shard's own tensor; those recorded if there are none.
  Dims local_sizes = {};
};
Value MakeShardedTensor(ValueArena& arena, const ShardedSpec& spec);

// What a rank has of a DTensor, in the form of PyTorch 2.11.
struct DTensorSpec {
  DType dtype = DType::kUInt8;
  Dims shape;  // of the whole
  Dims local;  // of the rank's own tensor
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
